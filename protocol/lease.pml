/*
 * lease.pml - scheduler + lease + fencing token + call journal, one inbox message.
 *
 * Names here and in the code: intent = a row of call_starts, verdict = the call's
 * state unknown, reply = a row of replies, curtok = leases.token, taker =
 * turns.worker_id, last = turns.write_id, FENCE = the condition of the statement Step,
 * claim = the binding of a grant.
 *
 * What is modelled
 *   durable  : the contents of Postgres. One atomic{} block = one SQL transaction that
 *              takes the lease row lock (SELECT ... FOR UPDATE) before it writes.
 *   Exec     : one execution of the turn by a worker under one grant (= one token).
 *              With -DDOUBLE the queue may give out a grant's job twice: then two
 *              executions have one token, and the grant is bound to the first one,
 *              before it does anything (-DCLAIM_LATE: with its first write).
 *              Old executions are never stopped: any of them may sleep for any time
 *              between any two steps and then continue (SIGSTOP, GC, VM pause, slow net).
 *   lost     : with -DLOST the answer to the write of the intent may be lost, whether
 *              the write happened or not. The execution then reads back who wrote last.
 *   crash    : an execution may die at every labelled point.
 *   expiry   : UNTIMED part: the lease may lapse at any moment (no assumption about clocks).
 *              TIMED part (-DTIMED): discrete time, drift, bounded pause, tool run time.
 *
 * Properties
 *   A1  never two replies                       assert(outbox <= 1)
 *   A2  no commit under an old token            assert(tok == curtok) at each commit
 *   A3  non-idempotent effect at most once      assert(effects <= 1)
 *   A4  a reply reports only the outcome that was journalled first
 *   A5  a token is granted once                 assert at grant
 *   A6  only the claimer of a grant writes under it assert at each commit
 *   L1  every accepted message gets its reply   ltl (finitely many faults, weak fairness)
 *   T1  (TIMED) no effect starts, or still runs, after the lease has lapsed
 *   T2  (TIMED) two executions never have an effect in flight at once
 *
 * Use
 *   spin -a [-DBUG_x] lease.pml && gcc -O2 -DSAFETY pan.c -o pan && ./pan -m200000
 *   spin -a [-DBUG_x] -DLIVE lease.pml && gcc -O2 -DNFAIR=8 pan.c -o pan && ./pan -a -f -E -m1000000 -N reply
 *   lease_check.sh checks the protocol as built and every mutant, and prints a table.
 */

#ifndef MAXGRANT
#define MAXGRANT 3            /* grants per message: bounds the faults, which L1 needs */
#endif

#ifndef TIMED
/* ------------------------------------------------------------------ UNTIMED */

mtype = { J_NONE, J_INTENT, J_DONE, J_UNKNOWN };

/* durable */
bool  accepted = false;       /* inbox row */
bool  jobq     = false;       /* job row (doorbell) */
bool  done     = false;       /* inbox row marked answered */
byte  outbox   = 0;           /* reply rows */
byte  curtok   = 0;           /* fencing token of the last grant */
byte  owner    = 0;           /* worker name of the last grant */
byte  taker    = 0;           /* execution that the last grant is bound to; 0: none yet */
byte  last     = 0;           /* execution that wrote the intent; 0: nobody */
bool  live     = false;       /* lease not lapsed, by the database clock */
mtype j        = J_NONE;      /* journal row of the one non-idempotent call */
byte  jtok     = 0;           /* token that wrote the intent */
bool  late     = false;       /* result that came after the turn had moved on */
mtype told     = J_NONE;      /* first outcome any execution built on (ghost) */

/* outside */
byte  effects  = 0;

/* bookkeeping */
byte  grants   = 0;
bool  given[MAXGRANT+2];      /* ghost: token handed out */
bool  renewing = false;       /* a renewer is keeping the lease alive */

#if defined(BUG_NOFENCE)
#define FENCE 1
#elif defined(BUG_OWNER_FENCE)
#define FENCE (owner == w)
#elif defined(BUG_LIVE_FENCE)
#define FENCE (live)
#elif defined(FENCE_STRICT)
#define FENCE (curtok == tok && live && MINE)
#else
#define FENCE (curtok == tok && MINE)
#endif

/* a grant belongs to one execution */
#if defined(BUG_NO_CLAIM)
#define MINE true
#define CLAIM taker = me
#elif defined(CLAIM_LATE)
/* every write under the fence claims it */
#define MINE (taker == 0 || taker == me)
#define CLAIM taker = me
#else
#define MINE (taker == me)
#define CLAIM skip
#endif

/* how a writer whose answer was lost recognises its own write */
#ifdef BUG_READ_BACK_ANY
#define OWN (curtok == tok && j == J_INTENT)
#else
#define OWN (FENCE && j == J_INTENT && last == me)
#endif

/* finitely many answers get lost */
#ifdef LIVE
#define LOSES (tok < MAXGRANT)
#else
#define LOSES true
#endif

/* an execution may die here; the last grant may not (finitely many faults) */
#define CRASH  if :: (tok < MAXGRANT) -> goto stop :: true fi

proctype Exec(byte w; byte tok; byte me)
{
	mtype seen;
	bool ok;

#if !defined(BUG_NO_CLAIM) && !defined(CLAIM_LATE)
	/* bind the grant before doing anything under it */
	atomic { if :: (curtok == tok && (taker == 0 || taker == me)) -> taker = me :: else -> goto stop fi };
#endif
reading:
	CRASH;
#ifdef BUG_JOURNAL_PER_ATTEMPT
	atomic { if :: (jtok == tok) -> seen = j :: else -> seen = J_NONE fi };
#else
	seen = j;
#endif
	if
	:: (seen == J_DONE) -> goto commit
	:: (seen == J_UNKNOWN) -> goto commit
	:: (seen == J_INTENT) ->
#ifdef BUG_REEXEC
		goto effect
#else
		/* unknown outcome: record the verdict first, then build on it */
		atomic {
			if
			:: (FENCE && j == J_INTENT) -> CLAIM; j = J_UNKNOWN; seen = J_UNKNOWN
			:: (FENCE && j != J_INTENT) -> goto reading
			:: !(FENCE) -> goto stop
			fi
		};
		goto commit
#endif
	:: (seen == J_NONE) -> skip
	fi;

#if defined(BUG_NO_INTENT)
	goto effect;
#elif defined(BUG_UNFENCED_INTENT)
	/* unique(turn,call) only: the loser must not continue */
	atomic { if :: (j == J_NONE) -> j = J_INTENT; jtok = tok :: else -> goto reading fi };
#elif defined(BUG_ON_CONFLICT_IGNORED)
	/* INSERT ... ON CONFLICT DO NOTHING, row count ignored */
	atomic { if :: (j == J_NONE) -> j = J_INTENT; jtok = tok :: else -> skip fi };
#elif defined(BUG_JOURNAL_PER_ATTEMPT)
	atomic { if :: (FENCE) -> j = J_INTENT; jtok = tok :: else -> goto stop fi };
#elif defined(BUG_ACK_LOST_RETRY)
	/* intent commits, the ack is lost, and the retry takes "row exists" as its own
	   without comparing token and nonce */
	atomic { if :: (j == J_NONE && FENCE) -> j = J_INTENT; jtok = tok :: else -> skip fi };
#elif defined(BUG_CHECK_THEN_ACT)
	(true) -> ok = FENCE;
	if :: !ok -> goto stop :: else -> skip fi;
	atomic { if :: (j == J_NONE) -> j = J_INTENT; jtok = tok :: else -> goto reading fi };
#else
	atomic {
		if
		:: (FENCE && j == J_NONE) -> CLAIM; j = J_INTENT; jtok = tok; last = me
		:: (FENCE && j != J_NONE) -> goto reading
		:: !(FENCE) -> goto stop
#ifdef LOST
		:: (LOSES && FENCE && j == J_NONE) -> CLAIM; j = J_INTENT; jtok = tok; last = me; goto lost
		:: (LOSES) -> goto lost                 /* the write did not happen */
#endif
		fi
	};
#endif
#ifdef LOST
	goto effect;
lost:
	CRASH;
	atomic {
		if
		:: (OWN) -> goto effect
		:: !(OWN) -> goto reading               /* it did not happen, or another has written */
		fi
	};
#endif

effect:
	CRASH;
	effects++;                                  /* the outside world changes here */
	assert(effects <= 1);                       /* A3 */
#ifdef CHECK_ZOMBIE_EFFECT
	assert(tok == curtok);                      /* expected to fail: the outside checks no token */
#endif
#ifdef HANG
	if :: (tok < MAXGRANT) -> endhang: (false) :: true fi;  /* tool never returns */
#endif
	CRASH;

	/* result: guarded by the intent's own token, never by time */
	atomic {
		if
#ifdef BUG_RESULT_OVERWRITES
		:: (jtok == tok) -> j = J_DONE
#else
		:: (j == J_INTENT && jtok == tok) -> j = J_DONE
#endif
		:: else -> late = true                  /* kept as a late result, changes nothing */
		fi
	};
	seen = J_DONE;
#ifdef BUG_NO_INTENT
	j = J_DONE; jtok = tok;
#endif

commit:
	CRASH;
	/* the model now builds its next message on `seen` (journalled LLM step) */
	atomic {
		if
		:: (FENCE) ->
			CLAIM;
			if :: (told == J_NONE) -> told = seen :: else -> skip fi;
			assert(told == seen)                /* A4 */
		:: else -> goto stop
		fi
	};
	CRASH;
#if defined(BUG_SPLIT_DONE_FIRST)
	atomic { if :: (FENCE) -> done = true; live = false :: else -> goto stop fi };
	CRASH;
	outbox++;
#elif defined(BUG_SPLIT_OUTBOX_FIRST)
	atomic { if :: (FENCE) -> outbox++; assert(outbox <= 1) :: else -> goto stop fi };
	CRASH;
	done = true; live = false;
#elif defined(BUG_CHECK_THEN_ACT)
	(true) -> ok = FENCE;
	if :: !ok -> goto stop :: else -> skip fi;
	atomic { outbox++; done = true; live = false; assert(outbox <= 1); assert(tok == curtok) };
#else
	/* ONE transaction: fence + reply + inbox answered + lease freed + job finished */
	atomic {
		if
		:: (FENCE) ->
			assert(tok == curtok);              /* A2 */
#ifndef BUG_NO_CLAIM
			assert(taker == me);                /* A6 */
#endif
#ifdef UNIQUE_OUTBOX
			if :: (outbox == 0) -> outbox++ :: else -> skip fi;
#else
			outbox++;
#endif
			done = true; live = false
		:: else -> skip
		fi
	};
	assert(outbox <= 1);                        /* A1 */
#endif
stop:
	skip
}

/* two schedulers run at once on purpose: the protocol must not need a single one */
proctype Sched(byte me)
{
	byte t, w;
end:
	do
#ifdef BUG_SCHED_TOCTOU
	:: (jobq && !done && !live && grants < MAXGRANT) ->
		t = curtok + 1;
		if :: w = 0 :: w = 1 fi;
		atomic {
			if
			:: (grants < MAXGRANT) ->
				grants++; curtok = t; live = true; owner = w; taker = 0;
				assert(!given[t]);              /* A5 */
				given[t] = true;
				run Exec(w, t, t)
			:: else -> skip
			fi
		}
#else
	:: atomic {
		(jobq && !done && !live && grants < MAXGRANT) ->
			if :: w = 0 :: w = 1 fi;
			grants++; curtok++; live = true; owner = w; taker = 0;
			assert(!given[curtok]);             /* A5 */
			given[curtok] = true;
#ifdef DOUBLE
			/* the queue gives the job out twice, to any workers */
			if :: run Exec(1 - w, curtok, MAXGRANT + curtok) :: run Exec(w, curtok, MAXGRANT + curtok) :: skip fi;
#endif
			run Exec(w, curtok, curtok)
	   }
#endif
	od
}

/* the lease may lapse at any time, but the last grant lives long enough */
proctype Clock()
{
end:
	do
#if defined(RENEW_BG) || defined(BUG_RENEW_BY_TURN)
	/* a background renewer ticks while the process lives, even if the turn hangs */
	:: atomic { (live && !renewing && grants < MAXGRANT) -> live = false }
#else
	:: atomic { (live && grants < MAXGRANT) -> live = false }
#endif
	:: (done) -> break
	od
}

proctype Renewer()
{
#if defined(RENEW_BG)
	(grants > 0);
	renewing = true;
#ifdef RENEW_CAPPED
	renewing = false          /* stops at the turn's time limit, whatever the turn does */
#else
	(done);
	renewing = false
#endif
#elif defined(BUG_RENEW_BY_TURN)
	/* UPDATE ... WHERE turn_id=$1 without the token: a paused worker of grant 1 wakes up
	   after the take-over and renews the lease of grant 2, whose own worker is dead */
	(grants > 1);
	renewing = true;
	(done);
	renewing = false
#else
	skip
#endif
}

init {
	byte k;
	atomic {
		run Sched(0); run Sched(1); run Clock(); run Renewer()
	};
#ifdef BUG_SPLIT_ENQUEUE
	accepted = true;
	if :: true -> goto out :: true fi;          /* API process dies between the two */
	jobq = true;
#else
	atomic { accepted = true; jobq = true };
#endif
out:
	skip
}

#ifdef LIVE
ltl reply { [] (accepted -> <> (outbox > 0)) }
#endif

#else
/* ------------------------------------------------------------------ TIMED
 * Discrete time. Only the window around one external effect is modelled:
 *   grant at the database -> (queue wait) -> worker looks at its clock -> (pause)
 *   -> effect starts -> effect runs 1..TOOL ticks -> ends.
 * After a lapse (+ GRACE) the next execution is granted and does the same.
 */
#ifndef TTL
#define TTL    8
#endif
#ifndef TOOL
#define TOOL   3              /* tool timeout that the check assumes */
#endif
#ifndef RUN
#define RUN    TOOL           /* longest actual run of a tool; > TOOL = timeout not enforced */
#endif
#ifndef PAUSE
#define PAUSE  1              /* longest tolerated pause between check and effect */
#endif
#ifndef DRIFT
#define DRIFT  1              /* ticks a worker clock may lose over one lease */
#endif
#ifndef MARGIN
#define MARGIN (PAUSE + DRIFT)
#endif
#ifndef GRACE
#define GRACE  0              /* lock-delay: wait after a lapse before the next grant */
#endif
#define TMAX   (3*TTL + GRACE + 2)
#define NEVER  255

byte now = 0;
byte expires = 0;             /* database: end of the current lease */
byte tokn = 0;
byte inflight = 0;            /* effects running outside */
byte due[3];                  /* per execution: it must move before this time */

proctype Tick()
{
end:
	do
	:: atomic { (now < TMAX && now < due[1] && now < due[2]) -> now++ }
	od
}

proctype TExec(byte tok; byte t0)
{
	byte start, lost, left, seen;

	/* queue wait: the job may sit in the queue for any time after the grant */
	atomic {
		if
#ifdef BUG_LOCAL_ANCHOR
		:: start = now                          /* deadline counted from the start of work */
#else
		:: start = t0                           /* deadline counted from the grant */
#endif
		fi;
		if :: lost = 0 :: lost = DRIFT fi       /* worker clock may run slow */
	};

	/* the check: remaining lease by the worker's own clock */
	atomic {
		if :: (now - start >= lost) -> seen = now - start - lost :: else -> seen = 0 fi;
		if
		:: (seen + TOOL + MARGIN < TTL) -> skip   /* strictly less: at equality the effect may end as the lease does */
		:: else -> goto stop                    /* too late: hand back, start nothing */
		fi;
#ifndef UNBOUNDED_PAUSE
		due[tok] = now + PAUSE
#endif
	};

	/* pause of 0..PAUSE ticks, then the effect starts */
	atomic {
#ifdef CHECK_T1
		assert(now < expires || tok < tokn);    /* started inside the lease */
		assert(tok == tokn);
#endif
		assert(inflight == 0);                  /* T2 */
		inflight++;
		due[tok] = now + RUN
	};

	/* effect runs for at most RUN ticks */
	atomic {
#ifdef CHECK_T1
		assert(tok == tokn);                    /* T1: no other execution was granted meanwhile */
		assert(now <= expires);
#endif
		inflight--;
		due[tok] = NEVER
	};
stop:
	due[tok] = NEVER
}

init {
	atomic {
		due[0] = NEVER; due[1] = NEVER; due[2] = NEVER; run Tick();
		tokn = 1; expires = now + TTL; run TExec(1, now)
	};
	atomic { (now >= expires + GRACE) -> tokn = 2; expires = now + TTL; run TExec(2, now) };
}
#endif
