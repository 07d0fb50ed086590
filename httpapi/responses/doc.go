// Package responses speaks OpenAI's Responses API for agents. A response is a
// message of the inbox, its id is resp_ and the message's, its model is the agent,
// and what it goes on from is the conversation. A client's library needs to know
// the base URL and nothing else.
//
// The events of a response are made from what is stored of it and of nothing else, so
// that each has the same number and content whenever, and by whichever process, it is
// sent. Text is streamed once it is the reply: that API has no event that takes back
// text which a lost worker, another attempt or a further round makes void.
//
// The package identifies callers only by a Caller. It has no state.
package responses
