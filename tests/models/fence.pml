/* One message from its publish to its end: no matter how workers freeze, die and resume, it ends once, and only the holder of its lock ends it.

   The model checks:
     - at every moment the message is in exactly one table: in messages.message, or once in messages.message_archive
     - a settle changes the message only if the attempt that it ends still holds the lock
     - an effect that a handler has in the transaction of its own completion (ctx.transaction()) happens at most once, and only if the message
       ended as a success

   The variables:
     live, archived    rows in the two tables
     claim             claim_id, 0 = NULL; no number is drawn twice
     attempts          counted when claimed; returned by release and defer
     by                locked_by: the first two tasks run in one daemon, the third in another
     holder            the task whose latest attempt really holds the lock; no settle may read it

   Tasks claim, run, and end in every way of messages.complete, reject, fail, retry, defer and release, or freeze, or die at any step.
   A settle whose answer was lost is sent again. Locks expire at any time: a task that is late is no different from one that was stopped. An
   operator cancels at any time.
   In the code: messages.claim, archive, retry, return_attempts, expire_locks, cancel.

   Variants, each of which fails and so shows what a part is for:
     BY_ID             settle the row with this id, in any state
     BY_LOCK           settle the row with this id if it is locked
     BY_ATTEMPTS       fence by the number of attempts: a release (a drain) returns the attempt, so that the next claim has the same number,
                       and the repeated release takes the lock from its new holder
     BY_WORKER         fence by the name of the worker: it can claim the message twice
     INSERT_FIRST      archive in two transactions, the new row first
     DELETE_FIRST      archive in two transactions, the old row first */

#define TASKS        3
#define MAX_ATTEMPTS 2
#define CLAIMS       5    /* the model ends after this many numbers of the sequence */
#define NO_TASK      TASKS

bool live = true;
byte archived, claim, attempts, effects, successes;
byte by, holder = NO_TASK;
byte sequence;

#define unlock() claim = 0; by = 0; holder = NO_TASK

/* The condition of a settle of this task's attempt. */
#if defined(BY_ID)
#define fence (live)
#elif defined(BY_LOCK)
#define fence (live && claim != 0)
#elif defined(BY_ATTEMPTS)
#define fence (live && claim != 0 && attempts == my_attempts)
#elif defined(BY_WORKER)
#define fence (live && claim != 0 && by == my_daemon)
#else
#define fence (live && claim == my_claim)
#endif

#if defined(INSERT_FIRST)
#define move_to_archive() archived++; in_between = true
#elif defined(DELETE_FIRST)
#define move_to_archive() live = false; in_between = true
#else
#define move_to_archive() live = false; archived++; unlock()
#endif

proctype task(byte me; byte my_daemon) {
  byte my_claim, my_attempts;
  bool in_between;

  do
  :: sequence == CLAIMS || !live -> break
  :: atomic {
       live && claim == 0 && attempts < MAX_ATTEMPTS && sequence < CLAIMS ->
       sequence++; attempts++;
       claim = sequence; by = my_daemon; holder = me;
       my_claim = claim; my_attempts = attempts
     };

     if
     :: goto dead                                /* kill -9 while it runs; the lock stays until it expires */
     :: true                                     /* it ran, for any time */
     fi;

settle:
     atomic {
       if
       :: fence ->
          assert(holder == me);
          if
          :: move_to_archive(); successes++      /* complete */
          :: move_to_archive(); successes++; effects++;   /* complete, with an effect in the same transaction */
          :: move_to_archive()                   /* reject, fail */
          :: attempts < MAX_ATTEMPTS -> unlock() /* retry */
          :: attempts == MAX_ATTEMPTS -> move_to_archive()
          :: attempts--; unlock()                /* release, defer */
          fi
       :: else                                   /* the lock was lost: nothing changes, an effect is rolled back */
       fi
     };

#if defined(INSERT_FIRST) || defined(DELETE_FIRST)
     if
     :: in_between ->                            /* the second transaction */
        if
        :: goto dead
        :: true
        fi;
#ifdef INSERT_FIRST
        d_step { live = false; unlock() };
#else
        d_step { archived++; unlock() };
#endif
        in_between = false
     :: else
     fi;
#endif
     if
     :: goto settle                              /* the answer was lost: settle again */
     :: d_step { my_claim = 0; my_attempts = 0 }
     fi
  od;

dead:
  skip
}

/* messages.expire_locks, from any number of ticks. */
active proctype tick() {
end_of_day:
  do
  :: atomic {
       live && claim != 0 ->
       if
       :: attempts < MAX_ATTEMPTS -> unlock()
       :: else -> live = false; archived++; unlock()
       fi
     }
  od
}

/* messages.cancel */
active proctype operator() {
end_if_never:
  atomic { live -> live = false; archived++; unlock() }
}

active proctype auditor() {
  assert(live + archived == 1 && effects <= 1 && effects <= successes)
}

init {
  atomic { run task(0, 1); run task(1, 1); run task(2, 2) }
}
