/* The wake-up: a transaction that makes messages ready notifies only armed workers, and no worker sleeps while a message waits.

   The model checks: when every worker sleeps or is dead, and none has a notification, no message waits. The poll is not in this
   model, so that a message that only the poll would find is an error here. A variable that is not read again is set to 0: otherwise
   there would be several times as many states.

   The variables:
     waiting           there are committed messages that are ready
     locked            they are locked by a claim that has not ended: other claims skip them
     armed             the rows of messages.sleeper that are armed, as committed: a set of workers
     gate              the time in the sequence messages.armed_until has not passed yet: a worker may be armed. It passes only after every flag
                       has, or is lowered (lower_armed_until) when no flag is set and no worker is raising it
     raising           workers that have raised it for a flag which is not committed yet: a count
     running           transactions that have an xid and have not ended: a set of publishers
     before[w]         those of them whose xid is lower than the one that worker w drew for itself, draw_xid(). oldest_running_xid() has reached
                       that xid exactly if none of them runs any more: no xid needs a number, so that the model has no bound on how often
                       anything happens
     notified          workers that have a notification which they have not processed yet: a set
     awake             workers that neither sleep nor are dead: a set
     listening         workers that are not dead: a set

   A publisher is any transaction that makes messages ready: by INSERT, or by retry, defer, release, redrive, expire_locks, which notify as the
   trigger does. Publishers commit, roll back, do so several times in one transaction, and use REPEATABLE READ. Workers claim
   all or some of the waiting messages, arm, sleep, stay armed over wake-ups and sleep again without a new horizon, disarm when busy, stay awake
   for a while and claim again, armed or not, lose connections before and after their commit, and one of them dies.
   In the code: messages.new_message, notify_topics, arm, draw_xid, oldest_running_xid, next_due, disarm; worker/loop/claim_planner.py and client/processing/worker_client.py.

   Variants, each of which fails and so shows what a part is for:
     NAIVE             sleep as soon as the flag is set
     ONE_CLAIM         claim once after the flag is set, then sleep
     XMAX              take the horizon from pg_snapshot_xmax, the highest xid that has ended, instead of from an own xid
     XID_BEFORE_FLAG   draw the xid before the flag is committed
     XMIN_AFTER_CLAIM  read the oldest xid after the claim instead of before
     OLD_SNAPSHOT      let publishers in REPEATABLE READ read the flags, too, instead of notifying whenever the time has not passed
     FLAG_BEFORE_ROW   read the flags before the row has its xid (a BEFORE trigger)
     STALE_HORIZON     when the flag was not set, set it again without a new xid
     ONE_FLAG          one flag for all workers
     GATE_AFTER_XID    raise the time in the sequence after the own xid is drawn instead of before
     LOWERED_TOO_SOON  lower the time in the sequence although a worker is about to commit a flag
     IGNORE_NOTIFY     forget a notification that came during a claim
     PAUSE_IS_SLEEP    stay awake for a while, and then do not claim again
     SKIP_AND_SLEEP    sleep although a due message is locked by the claim of another worker: that claim may be rolled back */

#ifndef PUBLISHERS
#define PUBLISHERS 2
#endif
#define WORKERS    2
#define one(i)     (1 << (i))
#define ALL_WORKERS  (one(WORKERS) - 1)

bool waiting, locked, gate;
byte armed, running, notified, raising;
byte awake = ALL_WORKERS, listening = ALL_WORKERS;
byte before[WORKERS];
#ifdef XMAX
byte lower[PUBLISHERS];       /* running transactions whose xid is lower than that of this one */
byte lower_than_flag[WORKERS];
byte below_top;               /* those whose xid is lower than the highest that has ended */
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
  notifies = false
}

proctype publisher(byte me) {
  bool notifies;

  do
  :: true ->
#ifdef FLAG_BEFORE_ROW
     notifies = (armed != 0);
     d_step { take_xid() }
#else
     d_step { take_xid() };                      /* INSERT: the row has its xid */
     do                                          /* then the trigger, perhaps several times */
     :: !gate -> break
#ifndef OLD_SNAPSHOT
     :: atomic { gate -> notifies = true }; break   /* REPEATABLE READ: a sequence does not depend on the snapshot; the flags do */
#endif
     :: gate ->                                  /* only then it reads the flags, with a snapshot of its own */
        if
        :: atomic { armed != 0 -> notifies = true }; break
        :: armed == 0 -> break
        :: armed == 0
        fi
     od
#endif
     ;
#ifdef OLD_SNAPSHOT
     goto end_of_transaction
  :: true ->
     notifies = (armed != 0);
     d_step { take_xid() };
end_of_transaction:
#endif
     if
     :: d_step {                                 /* COMMIT: now it is visible, and notifies */
          waiting = true;
          notified = (notifies -> listening : notified);
          end_transaction()
        }
     :: d_step { end_transaction() }             /* ROLLBACK */
     fi
  od
}

/* The end of a claim's transaction, which also lowers the flag if necessary. The answer may be lost; then the flag is lowered again. */
inline commit() {
  if
  :: must_disarm ->
#ifdef ONE_FLAG
     armed = 0;
#else
     armed = armed & ~one(me);
#endif
     if
     :: true -> beyond = false; due = false; goto check
     :: true
     fi;
     must_disarm = false;
     counts = false;
#ifndef STALE_HORIZON
     proven = false;
     before[me] = 0
#endif
  :: else
  fi
}

proctype worker(bit me) {
  bool must_disarm;
  bool counts;                                   /* our flag is set, as far as we know */
  bool proven;                                   /* since it is set, a claim began after all older transactions had ended */
  bool beyond;                                   /* whether this claim does */
  bool due;                                      /* something is due now although the claim found nothing */
  goto check;

arm:
#ifdef XID_BEFORE_FLAG
  before[me] = running;
#endif
#ifndef GATE_AFTER_XID
  atomic { gate = true; raising++ };
#endif
#ifdef XMAX
  lower_than_flag[me] = running;                 /* the flag's transaction has an xid, too */
  d_step {
    armed = armed | one(me);
    below_top = below_top | lower_than_flag[me];
    lower_than_flag[me] = 0
  };
  before[me] = below_top;
  d_step { gate = true; raising = (raising > 0 -> raising - 1 : 0) };
#else
#ifdef GATE_AFTER_XID
  armed = armed | one(me);
#else
  d_step { armed = armed | one(me); raising-- };  /* arm(), committed */
#endif
#ifndef XID_BEFORE_FLAG
  if
#ifdef STALE_HORIZON
  :: proven -> skip
#endif
  :: else -> before[me] = running                /* draw_xid(), in a transaction of its own */
  fi;
#endif
#endif
#ifdef GATE_AFTER_XID
  gate = true;
#endif
  counts = true;

check:
#ifndef XMIN_AFTER_CLAIM
  beyond = (before[me] == 0);                    /* oldest_running_xid() >= draw_xid() */
#endif
  if                                             /* claim() */
  :: atomic { waiting && !locked -> locked = true; beyond = false };
     atomic {
       locked = false;
       if
       :: waiting = false; commit()              /* it claimed all, */
       :: commit()                               /* or a batch, or the one a notification named */
       :: goto check                              /* the connection broke, the claim is rolled back */
       :: me == 1 -> goto dead                   /* kill -9: likewise */
       :: me == 1 -> waiting = false; commit(); goto dead
       fi;
       if
       :: counts -> must_disarm = true           /* busy for a while: the flag only costs */
       :: true
       fi;
       goto check
     }
  :: atomic { !(waiting && !locked) -> skip }
  fi;
  due = waiting;                                 /* next_due(), which ignores locks */
#ifdef XMIN_AFTER_CLAIM
  beyond = (before[me] == 0);
#endif

  atomic {
    commit();
#ifdef NAIVE
    armed = armed | one(me);
    goto asleep;
#endif
    if
    :: notified & one(me) ->                         /* a notification arrived */
       notified = notified & ~one(me);
#ifndef IGNORE_NOTIFY
       beyond = false; due = false; goto check
#endif
    :: true                                      /* none, or it has not arrived yet */
    fi;
    if
#ifdef PAUSE_IS_SLEEP
    :: beyond = false; due = false; goto asleep
#else
    :: beyond = false; due = false; goto check     /* messages arrive steadily: it claims again in a moment, armed or not */
#endif
    :: true
    fi;
    if
    :: !counts -> beyond = false; due = false; goto arm
#ifndef ONE_CLAIM
    :: counts && !proven && !beyond -> due = false; goto check    /* after some milliseconds */
#endif
    :: else -> proven = true; before[me] = 0; beyond = false
    fi;
#ifndef SKIP_AND_SLEEP
    if
    :: due -> due = false; goto check             /* after some milliseconds, too */
    :: else
    fi;
#endif
    due = false;
asleep:
    awake = awake & ~one(me)
  };

end_asleep:
  atomic {
    if
    :: notified & one(me) ->
       notified = notified & ~one(me);
       awake = awake | one(me);
       if :: counts = false; proven = false :: true fi;   /* the time of the poll: the flag has expired */
       goto check
    :: me == 1                                   /* kill -9, with the flag set */
    fi;
dead:
    awake = awake & ~one(me);
    listening = listening & ~one(me);
    notified = notified & ~one(me);
    before[me] = 0
  }
}

active proctype time_passes() {
end_time:
  do
#ifdef LOWERED_TOO_SOON
  :: d_step { gate && armed == 0 -> gate = false }
#else
  :: d_step { gate && armed == 0 && raising == 0 -> gate = false }
#endif
  od
}

active proctype nothing_more_happens() {
  waiting && awake == 0 && notified == 0 -> assert(!waiting)
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
