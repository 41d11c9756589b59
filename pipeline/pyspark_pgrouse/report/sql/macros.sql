-- Times are BIGINT: microseconds since 1970, in UTC. DuckDB's conversion of a TIMESTAMPTZ would depend on a time zone.

-- The microseconds of a moment; NULL before 1970, after the year 9999 and for infinity, none of which can be subtracted
-- safely.
CREATE MACRO micros(moment) AS
  CASE WHEN moment BETWEEN TIMESTAMPTZ '1970-01-01 00:00:00+00' AND TIMESTAMPTZ '9999-12-31 00:00:00+00'
    THEN epoch_us(moment) END;

-- The time between two moments; NULL without one of them, 0 if clocks disagree about their order.
CREATE MACRO elapsed(began_us, ended_us) AS
  CASE WHEN ended_us < began_us THEN 0 ELSE ended_us - began_us END;

-- Where the bucket or the step of a moment begins; both are counted from 1970.
CREATE MACRO bucket_of(us) AS us // getvariable('bucket_us') * getvariable('bucket_us');
CREATE MACRO step_of(us) AS us // getvariable('step_us') * getvariable('step_us');

-- Where the week of a moment begins: weeks are counted back from the end of the window; NULL in a week that is not read
-- as a whole.
CREATE MACRO week_of(us) AS
  CASE WHEN us >= getvariable('weeks_since_us')
       THEN getvariable('weeks_until_us')
         - ((getvariable('weeks_until_us') - 1 - us) // 604800000000 + 1) * 604800000000 END;

-- A time rounded to three digits. The order of times stays, so the percentile of the rounded times is the rounded
-- percentile.
CREATE MACRO last_digit(us) AS CASE WHEN us < 1000 THEN 1 ELSE CAST(pow(10, floor(log10(us)) - 2) AS BIGINT) END;
CREATE MACRO three_digits(us) AS (us + last_digit(us) // 2) // last_digit(us) * last_digit(us);

-- Returns whether two failure rates differ by three standard errors or more: a smaller difference may be chance.
CREATE MACRO is_sure(dead_before, ended_before, dead_after, ended_after) AS
  coalesce(
    ended_before > 0 AND ended_after > 0
    AND 0 < dead_before + dead_after AND dead_before + dead_after < ended_before + ended_after
    AND abs(dead_before / ended_before - dead_after / ended_after)
      >= 3 * sqrt((dead_before + dead_after) / (ended_before + ended_after)
                  * (1 - (dead_before + dead_after) / (ended_before + ended_after))
                  * (1 / ended_before + 1 / ended_after)),
    false);

-- The start of the bucket of a time, in seconds since 1970; and values by bucket: a line of a chart.
CREATE MACRO bucket_s(time) AS bucket_of(epoch_us(time)) // 1000000;
CREATE MACRO by_bucket(time, value) AS map(list(bucket_s(time)), list(value));
