/* The wake-up: publishes ring only for workers that are armed, and no worker sleeps while a message waits.

   What is checked: when nothing can happen any more but timers (nobody publishes, everybody sleeps), no message waits. There is no timer in
   this model, so that a message that only the poll would find is an error here.

   What stands for what:
     waiting           there are committed messages that nobody has claimed
     armed             the rows of messages.sleeper that are armed, as committed: a set of workers
     running           transactions that have an xid and have not ended: a set of publishers
     before[w]         those of them whose xid is lower than the one that worker w took for itself, own_xid(). That oldest_xid() has reached
                       that xid is the same as that none of them runs any more: no xid needs a number, so that the model has no bound on how
                       often anything happens
     rung              workers that have a notification which they did not look at yet: a set

   Publishers commit, roll back, insert several times in one transaction, use REPEATABLE READ, and stop for ever. Workers claim all or some of
   what waits, arm, sleep, stay armed over wake-ups and sleep again without a new horizon, disarm when busy, and die.
   In the code: messages.new_message, arm, own_xid, oldest_xid, disarm; pgrouse/claimer.py and store.py.

   Variants, each of which fails and so shows why a part is there:
     NAIVE             sleep as soon as the flag is up
     ONE_CLAIM         claim once after the flag is up, then sleep
     XMAX              take the horizon from pg_snapshot_xmax, the highest xid that has ended, instead of from an xid of one's own
     XID_BEFORE_FLAG   take the xid before the flag is committed
     XMIN_AFTER_CLAIM  look for the oldest xid after the claim instead of before
     OLD_SNAPSHOT      let publishers in REPEATABLE READ look for flags, too, instead of ringing in any case
     FLAG_BEFORE_ROW   look for flags before the row has its xid (a BEFORE trigger)
     STALE_HORIZON     when the flag was down, put it up again without a new xid
     ONE_FLAG          one flag for all workers
     DEAF              forget a notification that came during a claim
     CLAIM_ROLLS_BACK  worker 1 dies in the middle of a claim: its rows are back, and nobody rings. This is a limit: here the poll is needed */

#ifndef PUBLISHERS
#define PUBLISHERS 2
#endif
#define WORKERS    2
#define one(i)     (1 << (i))
#define EVERYBODY  (one(WORKERS) - 1)

bool waiting;
byte armed, running, rung;
byte before[WORKERS];
#ifdef XMAX
byte lower[PUBLISHERS];       /* running transactions whose xid is lower than that of this one */
byte lower_than_flag[WORKERS];
byte below_top;               /* those whose xid is lower than the highest that has ended */
#endif
#ifdef CLAIM_ROLLS_BACK
bool locked;                  /* what waits is locked by a claim that has not ended: other claims skip it */
#else
#define locked false
#endif

inline take_xid() {
#ifdef XMAX
  lower[me] = running;
#endif
  running = running | one(me)
}

inline end_transaction() {
  running = running & ~one(me);
  before[0] = before[0] & running;
  before[1] = before[1] & running;
#ifdef XMAX
  below_top = (below_top | lower[me]) & running;
  lower_than_flag[0] = lower_than_flag[0] & running;
  lower_than_flag[1] = lower_than_flag[1] & running;
  lower[me] = 0;
  lower[1 - me] = lower[1 - me] & running;
#endif
  rings = false
}

proctype publisher(byte me) {
  bool rings;

  do
  :: break
  :: true ->
#ifdef FLAG_BEFORE_ROW
     rings = (armed != 0);
     d_step { take_xid() }
#else
     d_step { take_xid() };                      /* INSERT: the row has its xid */
     do                                          /* then the trigger, with a snapshot of its own; perhaps several times */
     :: atomic { armed != 0 -> rings = true; break }
     :: atomic { armed == 0 -> break }
     :: armed == 0
     od
#endif
     ;
     goto end_of_transaction
  :: true ->                                     /* the same in REPEATABLE READ */
#ifdef OLD_SNAPSHOT
     rings = (armed != 0);
     d_step { take_xid() };
#else
     d_step { take_xid(); rings = true };
#endif
end_of_transaction:
     if
     :: d_step {                                 /* COMMIT: now it is seen, and now it rings */
          waiting = true;
          rung = (rings -> EVERYBODY : rung);
          end_transaction()
        }
     :: d_step { end_transaction() }             /* ROLLBACK */
     fi
  od
}

proctype worker(bit me) {
  bool must_disarm;
  bool counts;                                   /* our flag is up, as far as we know */
  bool proven;                                   /* since it is up, a claim began after all older transactions had ended */
  bool beyond;                                   /* whether this claim does */
  goto look;

arm:
#ifdef XID_BEFORE_FLAG
  before[me] = running;
#endif
#ifdef XMAX
  lower_than_flag[me] = running;                 /* the flag's transaction has an xid, too */
  d_step {
    armed = armed | one(me);
    below_top = below_top | lower_than_flag[me];
    lower_than_flag[me] = 0
  };
  before[me] = below_top;
#else
  armed = armed | one(me);                       /* arm(), committed */
#ifndef XID_BEFORE_FLAG
  if
#ifdef STALE_HORIZON
  :: proven -> skip
#endif
  :: else -> before[me] = running                /* own_xid(), in a transaction of its own */
  fi;
#endif
#endif
  counts = true;

look:
#ifndef XMIN_AFTER_CLAIM
  beyond = (before[me] == 0);                    /* oldest_xid() >= own_xid() */
#endif
#ifdef CLAIM_ROLLS_BACK
  if
  :: atomic { me == 1 && waiting -> locked = true };
     locked = false;
     goto dead
  :: true
  fi;
#endif
  atomic {                                       /* claim(), and in its transaction disarm() */
    if
    :: must_disarm ->
       must_disarm = false;
       counts = false;
#ifndef STALE_HORIZON
       proven = false;
#endif
#ifdef ONE_FLAG
       armed = 0
#else
       armed = armed & ~one(me)
#endif
    :: else
    fi;
    if
    :: waiting && !locked ->
       beyond = false;
       if :: waiting = false :: true fi;         /* a batch may be all or some */
       if
       :: must_disarm = counts                   /* busy for long: the flag only costs */
       :: true
       :: me == 1 -> goto dead                   /* kill -9, with the flag up or down */
       fi;
       goto look
    :: else
    fi
  };
#ifdef XMIN_AFTER_CLAIM
  beyond = (before[me] == 0);
#endif

  atomic {
#ifdef NAIVE
    armed = armed | one(me);
    goto asleep;
#endif
    if
    :: rung & one(me) ->                         /* somebody rang meanwhile */
       rung = rung & ~one(me);
#ifndef DEAF
       beyond = false; goto look
#endif
    :: true                                      /* nobody did, or we did not hear it yet */
    fi;
    if
    :: !counts -> beyond = false; goto arm
#ifndef ONE_CLAIM
    :: counts && !proven && !beyond -> goto look /* after some milliseconds */
#endif
    :: else -> proven = true; before[me] = 0; beyond = false
    fi
  };

asleep:
end_asleep:
  atomic {
    if
    :: rung & one(me) ->
       rung = rung & ~one(me);
       if :: counts = false; proven = false :: true fi;   /* it was time to look by ourselves: the flag counts no more */
       goto look
    :: me == 1                                   /* kill -9, with the flag up */
    fi
  };

dead:
  skip
}

active proctype nothing_more_happens() {
  timeout -> assert(!waiting)
}

init {
  byte i;
  atomic {
    for (i : 0 .. PUBLISHERS - 1) { run publisher(i) }
    run worker(0);
    run worker(1);
    i = 0
  }
}
