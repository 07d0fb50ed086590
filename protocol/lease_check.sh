#!/bin/sh
# Checks lease.pml: the protocol as built, then every mutant, and prints a table.
# Needs spin and gcc, which "make model" installs if it is allowed to. Takes about a minute.
# Works in a temporary folder. Exits with 1 if a result is not the expected one.
for program in spin gcc; do
	command -v "$program" >/dev/null || {
		echo "cannot check the protocol model: $program is not installed (Debian and Ubuntu: apt-get install spin gcc)" >&2
		exit 1
	}
done
here=$(cd "$(dirname "$0")" && pwd); tmp=$(mktemp -d); trap 'rm -rf "$tmp"' EXIT; cd "$tmp" || exit 1
cp "$here/lease.pml" .; rc=0
one() { # expected kind name flags...
	want=$1; kind=$2; name=$3; shift 3
	spin -a "$@" lease.pml >spin.out 2>&1 || { cat spin.out; exit 1; }
	if [ "$kind" = live ]; then
		gcc -O2 -DNFAIR=8 pan.c -o pan 2>gcc.out || { cat gcc.out; exit 1; }
		./pan -a -f -E -m1000000 -N reply >out 2>&1
	else
		gcc -O2 -DSAFETY pan.c -o pan 2>gcc.out || { cat gcc.out; exit 1; }
		./pan -m1000000 >out 2>&1
	fi
	if grep -q "errors: 0" out; then got=holds; else got=broken; fi
	why=$(sed -n 's/^pan:1: //p' out | head -1 | sed 's/ (at depth.*//')
	grep -q "max search depth too small" out && why="$why DEPTH"
	st=$(awk '/states, stored/{print $1; exit}' out)
	mark=ok; [ "$got" = "$want" ] || { mark=UNEXPECTED; rc=1; }
	printf '%-46s %-5s %-7s %9s  %-10s %s\n' "$name" "$kind" "$got" "$st" "$mark" "$why"
}
echo "--- untimed: no assumption about clocks"
one holds  safe "protocol as built"
one holds  live "protocol as built"                     -DLIVE
one holds  safe "protocol as built, 4 grants"                    -DMAXGRANT=4
one holds  live "protocol as built, 4 grants"                    -DLIVE -DMAXGRANT=4
one holds  safe "fence also asks: lease not lapsed"        -DFENCE_STRICT
one holds  live "fence also asks: lease not lapsed"        -DLIVE -DFENCE_STRICT
one holds  live "tool hangs, no renewal"                   -DLIVE -DHANG
one holds  safe "a job given out twice, 2 grants"         -DDOUBLE -DMAXGRANT=2
one holds  live "a job given out twice, 2 grants"         -DLIVE -DDOUBLE -DMAXGRANT=2
one broken safe "a job given out twice, no claim"         -DDOUBLE -DMAXGRANT=2 -DBUG_NO_CLAIM
one holds  safe "  claimed by the first write"             -DDOUBLE -DMAXGRANT=2 -DCLAIM_LATE
one holds  safe "a lost answer"                            -DLOST -DMAXGRANT=2
one holds  live "a lost answer"                            -DLIVE -DLOST -DMAXGRANT=2
one holds  safe "  and a job given out twice"              -DLOST -DDOUBLE -DMAXGRANT=2
one broken safe "  any row taken as own, claimed late"     -DLOST -DDOUBLE -DMAXGRANT=2 -DBUG_READ_BACK_ANY -DCLAIM_LATE
one broken safe "  any row taken as own, no claim"         -DLOST -DDOUBLE -DMAXGRANT=2 -DBUG_READ_BACK_ANY -DBUG_NO_CLAIM
one holds  safe "  any row taken as own, bound at first"   -DLOST -DDOUBLE -DMAXGRANT=2 -DBUG_READ_BACK_ANY
one holds  safe "  own row by its id, claimed late"        -DLOST -DDOUBLE -DMAXGRANT=2 -DCLAIM_LATE
one broken safe "zombie effect after take-over (A-Z)"      -DCHECK_ZOMBIE_EFFECT
one broken safe "no fence"                                 -DBUG_NOFENCE
one broken safe "no fence, unique(reply)"                  -DBUG_NOFENCE -DUNIQUE_OUTBOX
one broken safe "fence by worker name"                     -DBUG_OWNER_FENCE
one broken safe "fence by 'some lease is live'"            -DBUG_LIVE_FENCE
one broken safe "fence read, row not locked"               -DBUG_CHECK_THEN_ACT
one broken safe "effect before intent"                     -DBUG_NO_INTENT
one broken safe "open intent is run again"                 -DBUG_REEXEC
one broken safe "journal keyed by attempt"                 -DBUG_JOURNAL_PER_ATTEMPT
one broken safe "intent conflict ignored"                  -DBUG_ON_CONFLICT_IGNORED
one broken safe "lost ack: any row taken as own"           -DBUG_ACK_LOST_RETRY
one holds  safe "intent unique but not fenced"             -DBUG_UNFENCED_INTENT
one broken safe "late result overwrites verdict"           -DBUG_RESULT_OVERWRITES
one broken safe "reply first, answered second"             -DBUG_SPLIT_OUTBOX_FIRST
one broken live "answered first, reply second"             -DLIVE -DBUG_SPLIT_DONE_FIRST
one broken live "inbox row, then job row (2 tx)"           -DLIVE -DBUG_SPLIT_ENQUEUE
one broken safe "scheduler reads, then grants (2 tx)"      -DBUG_SCHED_TOCTOU
one broken live "background renewal + hung tool"           -DLIVE -DHANG -DRENEW_BG
one holds  live "background renewal with cap + hung tool"  -DLIVE -DHANG -DRENEW_BG -DRENEW_CAPPED
one broken live "renewal keyed by turn, not token"         -DLIVE -DHANG -DBUG_RENEW_BY_TURN
echo "--- timed: TTL 8, tool 3, pause 1, drift 1 ticks unless said"
T="-DTIMED -DCHECK_T1"
one holds  safe "margin = pause + drift (T1,T2)"           $T
one broken safe "margin 0"                                 $T -DMARGIN=0
one broken safe "margin = pause only"                      $T -DMARGIN=1
one broken safe "deadline counted from start of work"      $T -DBUG_LOCAL_ANCHOR
one broken safe "tool runs past its timeout"              $T -DRUN=6
one broken safe "unbounded pause, T2 only"                 -DTIMED -DUNBOUNDED_PAUSE
one broken safe "unbounded pause, margin 4, grace 4, T2"   -DTIMED -DUNBOUNDED_PAUSE -DMARGIN=4 -DGRACE=4
one broken safe "pause 5 > margin 2, no grace, T2"         -DTIMED -DPAUSE=5 -DMARGIN=2
one holds  safe "pause 5 > margin 2, grace 5, T2"          -DTIMED -DPAUSE=5 -DMARGIN=2 -DGRACE=5
one holds  safe "tool runs 6 > 3, grace 3, T2"             -DTIMED -DRUN=6 -DGRACE=3
exit $rc
