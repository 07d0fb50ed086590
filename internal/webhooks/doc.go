// Package webhooks pushes replies to endpoints, signed as Standard Webhooks has it.
//
// What is to be pushed are rows, made in the transaction of the reply; a Deliverer claims rows
// that are due, for a time, and notes what became of each attempt. Whoever dies on the way leaves a
// row whose claim runs out: so each reply is delivered at least once, and perhaps more often, always
// with the same id and body. No order is promised. Each endpoint has a goroutine and a bound on
// attempts under way of its own, and takes nothing from the others.
//
// The package knows no database: what it needs of one is Store.
package webhooks
