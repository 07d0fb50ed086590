// Package protocoltest holds transcripts of the scheduler, leases and journal: the
// real scheduler and runner of several workers over the store in memory, in fake time,
// one command after the other.
//
// Each file of testdata is a txtar archive: prose that says what it shows, the answers
// of the model, one a line in the order asked, and the transcript. A line of the transcript that
// begins with "> " is a command; below it stand the events that it caused, and what it
// changed in the store. go test ./internal/protocoltest -update writes the output anew.
//
// Commands (TIME is a duration such as 240s):
//
//	register AGENT [CRON]          make an agent known, with a schedule if CRON is given
//	start WORKER                   start a worker
//	enqueue AGENT "TEXT"           send a message
//	tick                           run one pass of the scheduler
//	work WORKER [until POINT]      take the jobs there are; stop the worker at a fault point
//	run-calls WORKER [until POINT] take the jobs of detached calls
//	continue WORKER                let a stopped worker go on
//	kill WORKER                    end a worker as a power cut would
//	lose-answer WORKER REQUEST     do its next such request, and lose the answer
//	give-again JOB                 give a job out a second time
//	cancel message|turn ID         cancel it
//	advance TIME                   let time pass; workers that run give signs of life
//	stabilize WORKER               tick and work until nothing changes
//
// Answers of the model: say "TEXT", call TOOL..., unavailable. The tools are look
// (without an effect), put (keyed), pay (once), send (once, detached), and
// wait_for_tool_output.
package protocoltest
