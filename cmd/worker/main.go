// Command worker runs agents' turns: it takes messages from their inboxes and
// writes replies to the outbox.
package main

import "turnkeeper/worker"

func main() { worker.Main() }
