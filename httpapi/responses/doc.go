// Package responses implements OpenAI's Responses API for agents, for OpenAI's client libraries with
// another base URL. A response is a message of the inbox: its id is "resp_" and the message's id, its
// model is the agent, and previous_response_id continues a conversation.
//
// The events of a response are computed from its stored state only, so an event has the same number
// and content whenever and by whichever process it is sent. Text is streamed only once it is the
// reply: the Responses API has no event that takes back text, as a lost worker, another attempt or
// another round would require. A client that asks for drafts gets each text of the model as an item
// whose end says what it was.
//
// The package has no state.
package responses
