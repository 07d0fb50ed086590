// Package protocoltest tests transcripts of the scheduler, leases and journal. They drive the real
// scheduler and runner of several workers over the store in memory, in fake time, one command
// after the other.
//
// Each file of testdata is a txtar archive: a description, the answers of the model, one per line
// in the order of the requests, and the transcript. A line of the transcript that begins with
// "> " is a command; the lines below it are the events it caused and its changes of the store.
// go test ./internal/protocoltest -update rewrites the output.
//
// Commands (TIME is a duration such as 240s):
//
//	register AGENT [CRON]          register an agent, with a schedule if CRON is given
//	start WORKER                   start a worker
//	enqueue AGENT "TEXT"           send a message
//	tick                           run one pass of the scheduler
//	work WORKER [until POINT]      run the queued jobs of turns; stop the worker at a fault point
//	run-calls WORKER [until POINT] run the queued jobs of detached calls
//	continue WORKER                resume a stopped worker
//	kill WORKER                    end a worker, as a power cut would
//	lose-answer WORKER REQUEST     do its next such request, but lose the answer
//	give-again JOB                 give a job out a second time
//	cancel message|turn ID         cancel it
//	advance TIME                   let time pass; running workers send heartbeats
//	stabilize WORKER               tick and work until nothing changes
//
// Answers of the model: say "TEXT", call TOOL..., unavailable. The tools are look
// (without an effect), put (keyed), pay (once), send (once, detached), and
// wait_for_tool_output.
package protocoltest
