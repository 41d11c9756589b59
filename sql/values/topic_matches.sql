-- Returns whether a pattern matches a topic. This is the one definition for handlers, subscriptions, policies, tokens
-- and lists.
--
-- Arguments: `p_pattern`: `orders.*` matches the topics with exactly one more level, as `orders.paid`; `orders.**`
-- those with any number of further levels, and at least one; `**` every topic. Neither matches `orders`, nor a topic of
-- dead letters, whose name ends with `.dlq`. A pattern without a star matches the topic with this name. Where lists are
-- filtered, and in tokens, any other text that ends with `*` is the beginning of a name, and `*` alone is every topic.
-- Result: true or false; NULL if an argument is NULL.
-- Errors: none.
-- Locks: none.
-- Called by: operators; and functions that read few topics.
CREATE OR REPLACE FUNCTION messages.topic_matches(p_pattern text, p_topic text)
RETURNS boolean
LANGUAGE sql
IMMUTABLE PARALLEL SAFE
SECURITY DEFINER
AS $$
  SELECT p_topic = p_pattern OR p_topic ~ ANY (messages.topic_regexps(ARRAY[p_pattern]))
$$;
