package responses_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"testing/iotest"

	"turnkeeper/inference"
	"turnkeeper/inference/openai/responses"
	"turnkeeper/internal/golden"
)

// answersOfServers are answers in the shapes that the documentation of OpenAI's API and the source of other servers
// show, written by hand. A stream has several lines, each the data of an event.
var answersOfServers = []string{
	// OpenAI's: text with a summary of its reasoning.
	`{"type":"response.created","sequence_number":0,"response":{"id":"resp_1","object":"response","status":"in_progress","model":"gpt-6","output":[],"usage":null,"error":null}}
{"type":"response.in_progress","sequence_number":1,"response":{"id":"resp_1","status":"in_progress","model":"gpt-6","output":[]}}
{"type":"response.output_item.added","sequence_number":2,"output_index":0,"item":{"id":"rs_1","type":"reasoning","encrypted_content":"gAAA","summary":[]}}
{"type":"response.reasoning_summary_part.added","sequence_number":3,"item_id":"rs_1","output_index":0,"summary_index":0,"part":{"type":"summary_text","text":""}}
{"type":"response.reasoning_summary_text.delta","sequence_number":4,"item_id":"rs_1","output_index":0,"summary_index":0,"delta":"**Look","obfuscation":"x8"}
{"type":"response.reasoning_summary_text.delta","sequence_number":5,"item_id":"rs_1","output_index":0,"summary_index":0,"delta":"ing**"}
{"type":"response.reasoning_summary_text.delta","sequence_number":6,"item_id":"rs_1","output_index":0,"summary_index":1,"delta":"**Saying**"}
{"type":"response.reasoning_summary_text.done","sequence_number":7,"item_id":"rs_1","output_index":0,"summary_index":1,"text":"**Saying**"}
{"type":"response.output_item.done","sequence_number":8,"output_index":0,"item":{"id":"rs_1","type":"reasoning","encrypted_content":"gAAAAA==","summary":[{"type":"summary_text","text":"**Looking**"},{"type":"summary_text","text":"**Saying**"}]}}
{"type":"response.output_item.added","sequence_number":9,"output_index":1,"item":{"id":"msg_1","type":"message","status":"in_progress","content":[],"role":"assistant"}}
{"type":"response.content_part.added","sequence_number":10,"item_id":"msg_1","output_index":1,"content_index":0,"part":{"type":"output_text","annotations":[],"logprobs":[],"text":""}}
{"type":"response.output_text.delta","sequence_number":11,"item_id":"msg_1","output_index":1,"content_index":0,"delta":"Hello \ud83c","logprobs":[],"obfuscation":"a"}
{"type":"response.output_text.delta","sequence_number":12,"item_id":"msg_1","output_index":1,"content_index":0,"delta":"\udf0d","logprobs":[]}
{"type":"response.output_text.done","sequence_number":13,"item_id":"msg_1","output_index":1,"content_index":0,"text":"Hello 🌍","logprobs":[]}
{"type":"response.output_item.done","sequence_number":14,"output_index":1,"item":{"id":"msg_1","type":"message","status":"completed","content":[{"type":"output_text","annotations":[],"logprobs":[],"text":"Hello 🌍"}],"role":"assistant"}}
{"type":"response.completed","sequence_number":15,"response":{"id":"resp_1","object":"response","status":"completed","model":"gpt-6-2026","incomplete_details":null,"error":null,"output":[{"id":"rs_1","type":"reasoning","encrypted_content":"gAAAAA==","summary":[{"type":"summary_text","text":"**Looking**"},{"type":"summary_text","text":"**Saying**"}]},{"id":"msg_1","type":"message","status":"completed","content":[{"type":"output_text","annotations":[],"logprobs":[],"text":"Hello 🌍"}],"role":"assistant"}],"usage":{"input_tokens":36,"input_tokens_details":{"cached_tokens":12,"cache_write_tokens":8},"output_tokens":20,"output_tokens_details":{"reasoning_tokens":10},"total_tokens":56}}}`,
	// Parallel calls after a comment, their pieces mixed.
	`{"type":"response.created","response":{"id":"resp_2","model":"gpt-6"}}
{"type":"response.output_item.added","output_index":0,"item":{"id":"msg_1","type":"message","status":"in_progress","content":[],"role":"assistant","phase":"commentary"}}
{"type":"response.output_text.delta","item_id":"msg_1","output_index":0,"content_index":0,"delta":"I look."}
{"type":"response.output_item.done","output_index":0,"item":{"id":"msg_1","type":"message","status":"completed","phase":"commentary","content":[{"type":"output_text","annotations":[],"text":"I look."}],"role":"assistant"}}
{"type":"response.output_item.added","output_index":1,"item":{"id":"fc_1","type":"function_call","status":"in_progress","arguments":"","call_id":"call_1","name":"clock"}}
{"type":"response.output_item.added","output_index":2,"item":{"id":"fc_2","type":"function_call","status":"in_progress","arguments":"","call_id":"call_2","name":"read_file"}}
{"type":"response.function_call_arguments.delta","item_id":"fc_2","output_index":2,"delta":"{\"p\":"}
{"type":"response.function_call_arguments.delta","item_id":"fc_1","output_index":1,"delta":"{}"}
{"type":"response.function_call_arguments.delta","item_id":"fc_2","output_index":2,"delta":"\"x\"}"}
{"type":"response.function_call_arguments.done","item_id":"fc_2","output_index":2,"arguments":"{\"p\":\"x\"}"}
{"type":"response.function_call_arguments.done","item_id":"fc_1","output_index":1,"arguments":"{}"}
{"type":"response.output_item.done","output_index":1,"item":{"id":"fc_1","type":"function_call","status":"completed","arguments":"{}","call_id":"call_1","name":"clock"}}
{"type":"response.output_item.done","output_index":2,"item":{"id":"fc_2","type":"function_call","status":"completed","arguments":"{\"p\":\"x\"}","call_id":"call_2","name":"read_file"}}
{"type":"response.completed","response":{"id":"resp_2","status":"completed","model":"gpt-6","output":[{"id":"msg_1","type":"message","status":"completed","phase":"commentary","content":[{"type":"output_text","annotations":[],"text":"I look."}],"role":"assistant"},{"id":"fc_1","type":"function_call","status":"completed","arguments":"{}","call_id":"call_1","name":"clock"},{"id":"fc_2","type":"function_call","status":"completed","arguments":"{\"p\":\"x\"}","call_id":"call_2","name":"read_file"}],"usage":{"input_tokens":5,"output_tokens":6}}}`,
	// A comment, a tool that the provider has run, and the answer: two paragraphs.
	`{"type":"response.output_text.delta","item_id":"m1","output_index":0,"content_index":0,"delta":"First."}
{"type":"response.web_search_call.searching","item_id":"ws_1","output_index":1}
{"type":"response.output_text.delta","item_id":"m2","output_index":2,"content_index":0,"delta":"Sec"}
{"type":"response.output_text.annotation.added","item_id":"m2","output_index":2,"content_index":0,"annotation_index":0,"annotation":{"type":"url_citation","url":"http://x"}}
{"type":"response.output_text.delta","item_id":"m2","output_index":2,"content_index":1,"delta":"ond."}
{"type":"response.completed","response":{"status":"completed","output":[{"id":"m1","type":"message","role":"assistant","status":"completed","content":[{"type":"output_text","text":"First."}]},{"id":"ws_1","type":"web_search_call","status":"completed","action":{"type":"search","query":"x"}},{"id":"m2","type":"message","role":"assistant","status":"completed","content":[{"type":"output_text","text":"Sec"},{"type":"output_text","text":"ond."}]}]}}`,
	// Whole, with reasoning between calls.
	`{"id":"resp_3","object":"response","status":"completed","model":"gpt-6","output":[{"id":"rs_1","type":"reasoning","summary":[],"encrypted_content":"a"},{"id":"fc_1","type":"function_call","call_id":"call_1","name":"clock","arguments":"{\"a\": 1}","status":"completed"},{"id":"rs_2","type":"reasoning","summary":[{"type":"summary_text","text":"more"}],"encrypted_content":"b"},{"id":"fc_2","type":"function_call","call_id":"call_2","name":"clock","arguments":"","status":"completed"}],"usage":{"input_tokens":-1,"input_tokens_details":null,"output_tokens":9007199254740992}}`,
	// Refusals.
	`{"type":"response.output_item.added","output_index":0,"item":{"id":"m","type":"message","status":"in_progress","content":[],"role":"assistant"}}
{"type":"response.refusal.delta","item_id":"m","output_index":0,"content_index":0,"delta":"I can"}
{"type":"response.refusal.delta","item_id":"m","output_index":0,"content_index":0,"delta":"not."}
{"type":"response.refusal.done","item_id":"m","output_index":0,"content_index":0,"refusal":"I cannot."}
{"type":"response.completed","response":{"status":"completed","output":[{"id":"m","type":"message","status":"completed","role":"assistant","content":[{"type":"refusal","refusal":"I cannot."}]}],"usage":{"input_tokens":1,"output_tokens":2}}}`,
	`{"object":"response","status":"completed","output":[{"id":"m","type":"message","role":"assistant","content":[{"type":"output_text","text":"Partly. "},{"type":"refusal","refusal":"Not more."}]}]}`,
	// Ends.
	`{"type":"response.output_text.delta","output_index":0,"delta":"cut of"}
{"type":"response.incomplete","response":{"status":"incomplete","incomplete_details":{"reason":"max_output_tokens"},"output":[{"id":"m","type":"message","status":"incomplete","role":"assistant","content":[{"type":"output_text","text":"cut of"}]}],"usage":{"input_tokens":1,"output_tokens":100}}}`,
	`{"object":"response","status":"incomplete","incomplete_details":{"reason":"max_output_tokens"},"output":[{"type":"function_call","id":"fc_1","call_id":"c1","name":"clock","arguments":"{}","status":"completed"},{"type":"function_call","id":"fc_2","call_id":"c2","name":"clock","arguments":"{\"a\":","status":"incomplete"}]}`,
	`{"object":"response","status":"incomplete","incomplete_details":{"reason":"max_output_tokens"},"output":[{"type":"reasoning","id":"rs","summary":[],"encrypted_content":"x","status":"incomplete"}],"usage":{"input_tokens":9,"output_tokens":100,"output_tokens_details":{"reasoning_tokens":100}}}`,
	`{"object":"response","status":"incomplete","incomplete_details":{"reason":"max_output_tokens"},"output":[],"usage":{"input_tokens":9,"output_tokens":0}}`,
	`{"type":"response.incomplete","response":{"status":"incomplete","incomplete_details":{"reason":"content_filter"},"output":[],"usage":{"input_tokens":9,"output_tokens":3}}}
[DONE]`,
	`{"object":"response","status":"incomplete","incomplete_details":{"reason":"content_filter"},"output":[{"type":"message","role":"assistant","content":[{"type":"output_text","text":"until here"}]}]}`,
	`{"object":"response","status":"incomplete","incomplete_details":{"reason":"max_messages"},"output":[{"type":"message","role":"assistant","content":[{"type":"output_text","text":"said"}]}]}`,
	`{"object":"response","status":"incomplete","incomplete_details":{"reason":"a new one"},"output":[{"type":"function_call","call_id":"c","name":"clock","arguments":"{}"}]}`,
	`{"object":"response","status":"in_progress","output":[]}`,
	`{"object":"response","status":"queued","output":[],"background":true}`,
	`{"object":"response","status":"cancelled","output":[{"type":"message","role":"assistant","content":[{"type":"output_text","text":"half"}]}]}`,
	`{"object":"response","status":"a new one","output":[{"type":"function_call","call_id":"c","name":"clock","arguments":"{}"}]}`,
	`{"object":"response","status":"completed","output":[{"type":"function_call","call_id":"c","name":"clock","arguments":"{}"}],"usage":{"input_tokens":1,"output_tokens":100}}`,
	`{"object":"response","status":"completed","output":[{"type":"function_call","call_id":"c","name":"clock","arguments":"{}","status":"incomplete"}]}`,
	`{"object":"response","status":"completed","output":[]}`,
	// Failures.
	`{"type":"response.created","response":{"id":"r","model":"m"}}
{"type":"response.failed","response":{"id":"r","status":"failed","error":{"code":"server_error","message":"The model failed."},"output":[],"usage":{"input_tokens":7,"output_tokens":8}}}`,
	`{"type":"response.failed","response":{"status":"failed","error":{"code":"rate_limit_exceeded","message":"Rate limit reached. Please try again in 11.054s."}}}
[DONE]`,
	`{"type":"response.failed","response":{"status":"failed","error":{"code":"context_length_exceeded","message":"Your input exceeds the context window of this model."}}}
[DONE]`,
	`{"type":"response.failed","response":{"status":"failed","error":{"code":"invalid_prompt","message":"Invalid prompt: your prompt was flagged."}}}
[DONE]`,
	`{"type":"response.failed","response":{"status":"failed","error":{"code":"bio_policy","message":"blocked"}}}
[DONE]`,
	`{"type":"response.failed","response":{"status":"failed","error":{"code":"image_too_large","message":"too large"}}}
[DONE]`,
	`{"type":"response.failed","response":{"status":"failed","error":{"code":"server_is_overloaded","message":"busy"}}}
[DONE]`,
	`{"type":"response.failed","response":{"status":"failed","error":null}}
[DONE]`,
	`{"type":"response.failed"}
[DONE]`,
	`{"type":"response.output_text.delta","output_index":0,"delta":"begun"}
{"type":"error","sequence_number":3,"code":"insufficient_quota","message":"You exceeded your current quota.","param":null}`,
	`{"type":"error","error":{"type":"server_error","code":"server_error","message":"Sorry."},"sequence_number":3}
[DONE]`,
	`{"error":{"message":"model crashed","type":"api_error","code":500}}
[DONE]`,
	`{"object":"response","status":"failed","error":{"code":"server_error","message":"no"},"output":[]}`,
	`{"error":{"code":"model_not_found","message":"The model does not exist"}}`,
	`{"object":"chat.completion","choices":[{"message":{"content":"hi"}}]}`,
	`<html><title>T</title>`,
	`[]`,
	// Streams without an end.
	`{"type":"response.output_text.delta","output_index":0,"delta":"begun"}
[DONE]`,
	`{"type":"response.output_text.delta","output_index":0,"delta":"begun"}
{"type":"response.output_item.do`,
	`{"type":"response.output_text.delta","output_index":0,"delta":"begun"}
7`,
	// Other servers. Ollama: thinking as encrypted content, an output in the last event.
	`{"type":"response.created","response":{"id":"resp_1","status":"in_progress","model":"qwen3"}}
{"type":"response.output_item.added","output_index":0,"item":{"id":"rs_1","type":"reasoning","summary":[]}}
{"type":"response.reasoning_summary_text.delta","item_id":"rs_1","output_index":0,"summary_index":0,"delta":"hm"}
{"type":"response.reasoning_summary_text.done","item_id":"rs_1","output_index":0,"summary_index":0,"text":"hm"}
{"type":"response.output_item.done","output_index":0,"item":{"id":"rs_1","type":"reasoning","encrypted_content":"hm","summary":[{"type":"summary_text","text":"hm"}]}}
{"type":"response.output_item.added","output_index":1,"item":{"id":"fc_1","type":"function_call","status":"in_progress","call_id":"call_1","name":"clock","arguments":""}}
{"type":"response.function_call_arguments.delta","item_id":"fc_1","output_index":1,"delta":"{\"a\":1}"}
{"type":"response.function_call_arguments.done","item_id":"fc_1","output_index":1,"arguments":"{\"a\":1}"}
{"type":"response.output_item.done","output_index":1,"item":{"id":"fc_1","type":"function_call","status":"completed","call_id":"call_1","name":"clock","arguments":"{\"a\":1}"}}
{"type":"response.completed","response":{"id":"resp_1","status":"completed","model":"qwen3","output":[{"id":"rs_1","type":"reasoning","summary":[{"type":"summary_text","text":"hm"}],"encrypted_content":"hm"},{"id":"fc_1","type":"function_call","status":"completed","call_id":"call_1","name":"clock","arguments":"{\"a\":1}"}],"usage":{"input_tokens":1,"output_tokens":2,"total_tokens":3}}}`,
	// llama.cpp: no indexes, no sequence numbers, reasoning as text.
	`{"type":"response.created","response":{"id":"resp_x","object":"response","status":"in_progress"}}
{"type":"response.in_progress","response":{"id":"resp_x","object":"response","status":"in_progress"}}
{"type":"response.output_item.added","item":{"id":"rs_x","summary":[],"type":"reasoning","content":[],"encrypted_content":"","status":"in_progress"}}
{"type":"response.reasoning_text.delta","delta":"Let me","item_id":"rs_x"}
{"type":"response.reasoning_text.delta","delta":" see","item_id":"rs_x"}
{"type":"response.output_item.added","item":{"content":[],"id":"msg_x","role":"assistant","status":"in_progress","type":"message"}}
{"type":"response.content_part.added","item_id":"msg_x","part":{"type":"output_text","text":""}}
{"type":"response.output_text.delta","item_id":"msg_x","delta":"Hi"}
{"type":"response.output_text.done","item_id":"msg_x","text":"Hi"}
{"type":"response.output_item.done","item":{"type":"reasoning","id":"rs_x","summary":[],"content":[{"text":"Let me see","type":"reasoning_text"}],"encrypted_content":"","status":"completed"}}
{"type":"response.output_item.done","item":{"type":"message","status":"completed","id":"msg_x","content":[{"type":"output_text","annotations":[],"logprobs":[],"text":"Hi"}],"role":"assistant"}}
{"type":"response.completed","response":{"id":"resp_x","object":"response","created_at":1,"status":"completed","model":"q","output":[{"type":"reasoning","id":"rs_x","summary":[],"content":[{"text":"Let me see","type":"reasoning_text"}],"encrypted_content":"","status":"completed"},{"type":"message","status":"completed","id":"msg_x","content":[{"type":"output_text","annotations":[],"logprobs":[],"text":"Hi"}],"role":"assistant"}],"usage":{"input_tokens":3,"output_tokens":4,"total_tokens":7}}}`,
	// xAI: calls come whole, reasoning has no id.
	`{"type":"response.output_item.added","output_index":0,"item":{"type":"function_call","id":"fc_1","call_id":"call-1","name":"clock","arguments":"{\"a\":1}","status":"completed"}}
{"type":"response.output_item.done","output_index":0,"item":{"type":"function_call","id":"fc_1","call_id":"call-1","name":"clock","arguments":"{\"a\":1}","status":"completed"}}
{"type":"response.completed","response":{"id":"r","model":"grok","status":"completed","output":[{"type":"reasoning","summary":[],"encrypted_content":"Hfq"},{"type":"function_call","id":"fc_1","call_id":"call-1","name":"clock","arguments":"{\"a\":1}","status":"completed"}],"usage":{"input_tokens":2,"output_tokens":3}}}`,
	// The last event has no output, or is named otherwise.
	`{"type":"response.output_item.done","output_index":1,"item":{"id":"m","type":"message","role":"assistant","status":"completed","content":[{"type":"output_text","text":"said"}]}}
{"type":"response.output_item.done","output_index":0,"item":{"id":"rs","type":"reasoning","summary":[],"encrypted_content":"x"}}
{"type":"response.output_item.done","output_index":2,"item":{"id":"fc","type":"function_call","call_id":"c","name":"clock","arguments":"{}"}}
{"type":"response.completed","response":{"id":"r","output":[]}}`,
	`{"type":"response.output_text.delta","delta":"only "}
{"type":"response.output_text.delta","delta":"pieces"}
{"type":"response.done","response":{"status":"completed","usage":{"input_tokens":1,"output_tokens":2}}}`,
	`{"type":"response.output_text.done","text":"no pieces"}
{"type":"response.completed"}`,
	`{"type":"response.output_item.added","item":{"type":"function_call","id":"fc","call_id":"c","name":"clock","arguments":""}}
{"type":"response.function_call_arguments.delta","item_id":"fc","delta":"{\"a\":"}
{"type":"response.function_call_arguments.delta","item_id":"fc","delta":"1}"}
{"type":"response.function_call_arguments.done","item_id":"fc"}
{"type":"response.completed","response":{}}`,
	`{"type":"response.output_item.added","item":{"type":"function_call","id":"fc","call_id":"c","name":"clock","arguments":""}}
{"type":"response.function_call_arguments.delta","item_id":"fc","delta":"{\"a\":1}"}
{"type":"response.completed","response":{}}`,
	// Only the event of the item has its encrypted reasoning.
	`{"type":"response.output_item.done","output_index":0,"item":{"id":"rs","type":"reasoning","summary":[],"encrypted_content":"x"}}
{"type":"response.completed","response":{"output":[{"id":"rs","type":"reasoning","summary":[],"encrypted_content":null},{"type":"message","id":"m","role":"assistant","status":"completed","content":[{"type":"output_text","text":"so"}]}]}}`,
	// One index for all items; ids that change from event to event; a message without its type.
	`{"type":"response.output_item.added","output_index":0,"item":{"type":"function_call","id":"fc_1","call_id":"c1","name":"clock","arguments":""}}
{"type":"response.function_call_arguments.delta","item_id":"fc_1","output_index":0,"delta":"{\"a\":1}"}
{"type":"response.output_item.added","output_index":0,"item":{"type":"function_call","id":"fc_2","call_id":"c2","name":"read_file","arguments":""}}
{"type":"response.function_call_arguments.delta","item_id":"fc_2","output_index":0,"delta":"{\"a\":2}"}
{"type":"response.function_call_arguments.delta","item_id":"fc_1","output_index":0,"delta":""}
{"type":"response.completed","response":{"status":"completed","output":[{"type":"function_call","id":"fc_1","call_id":"c1","name":"clock","arguments":"{\"a\":1}"},{"type":"function_call","id":"fc_2","call_id":"c2","name":"read_file","arguments":"{\"a\":2}"}]}}`,
	`{"type":"response.output_item.added","output_index":1,"item":{"type":"function_call","id":"AA","call_id":"c1","name":"clock","arguments":""}}
{"type":"response.function_call_arguments.delta","item_id":"BB","output_index":1,"delta":"{\"a\":1}"}
{"type":"response.output_item.done","output_index":1,"item":{"type":"function_call","id":"CC","call_id":"c1","name":"clock","arguments":"{\"a\":1}"}}
{"type":"response.completed","response":{"status":"completed","output":[{"role":"assistant","content":"as text"},{"type":"function_call","id":"DD","call_id":"c1","name":"clock","arguments":"{ \"a\": 1 }"}]}}`,
	// What was streamed differs from the whole answer.
	`{"type":"response.output_item.added","output_index":0,"item":{"type":"function_call","id":"fc","call_id":"c","name":"clock","arguments":""}}
{"type":"response.function_call_arguments.delta","item_id":"fc","output_index":0,"delta":"{\"a\":1}"}
{"type":"response.completed","response":{"status":"completed","output":[{"type":"function_call","id":"fc","call_id":"c","name":"clock","arguments":"{\"a\":2}"}]}}`,
	`{"type":"response.output_item.added","output_index":0,"item":{"type":"function_call","id":"fc","call_id":"c","name":"read_file","arguments":""}}
{"type":"response.completed","response":{"status":"completed","output":[{"type":"function_call","id":"fc","call_id":"c","name":"clock","arguments":"{}"}]}}`,
	`{"type":"response.output_item.added","output_index":0,"item":{"type":"function_call","id":"fc","call_id":"c","name":"clock","arguments":""}}
{"type":"response.output_item.added","output_index":1,"item":{"type":"function_call","id":"fc2","call_id":"c2","name":"clock","arguments":""}}
{"type":"response.completed","response":{"status":"completed","output":[{"type":"function_call","id":"fc","call_id":"c","name":"clock","arguments":"{}"}]}}`,
	`{"type":"response.output_text.delta","output_index":0,"delta":"one"}
{"type":"response.completed","response":{"status":"completed","output":[{"type":"message","role":"assistant","content":[{"type":"output_text","text":"other"}]},{"type":"function_call","id":"fc","call_id":"c","name":"clock","arguments":"{}"}]}}`,
	`{"type":"response.output_text.delta","output_index":0,"delta":"one"}
{"type":"response.completed","response":{"status":"completed","output":[{"type":"message","role":"assistant","content":[{"type":"output_text","text":"one and more"}]}]}}`,
	`{"type":"response.output_text.delta","output_index":0,"delta":"one"}
{"type":"response.completed","response":{"status":"completed","output":[{"type":"message","role":"assistant","content":[]}]}}`,
	`{"type":"response.output_item.added","output_index":0,"item":{"type":"function_call","id":"fc","call_id":"c","name":"clock","arguments":""}}
{"type":"response.function_call_arguments.delta","item_id":"fc","output_index":0,"delta":"{\"a\":1}"}
{"type":"response.function_call_arguments.done","item_id":"fc","output_index":0,"arguments":"{\"a\": 1}"}
{"type":"response.output_item.done","output_index":0,"item":{"type":"function_call","id":"fc","call_id":"c","name":"clock","arguments":"{ \"a\": 1}"}}
{"type":"response.completed","response":{"status":"completed","output":[{"type":"function_call","id":"fc","call_id":"c","name":"clock","arguments":"{\"a\":1}"}]}}`,
	`{"type":"response.function_call_arguments.done","item_id":"fc","output_index":0,"arguments":"{}","name":"clock"}
{"type":"response.function_call_arguments.delta","item_id":"fc","output_index":0,"delta":"{}"}
{"type":"response.completed","response":{"status":"completed","output":[{"type":"function_call","id":"fc","call_id":"c","name":"clock","arguments":"{}"}]}}`,
	// Calls in other forms.
	`{"output":[{"type":"function_call","id":"fc","name":"clock","arguments":{"a": [1, 2]}},{"type":"function_call","call_id":"c","name":"","arguments":"{}"}]}`,
	`{"output":[{"type":"function_call","call_id":"c","name":"clock","arguments":null,"input":{"a":1}}]}`,
	`{"output":[{"type":"function_call","call_id":"c","name":"clock","arguments":"{}"},{"type":"function_call","call_id":"c","name":"clock","arguments":"{}"}]}`,
	`{"output":[{"type":"function_call","call_id":"c","name":"clock","arguments":"{}"},{"type":"function_call","call_id":"c","name":"clock","arguments":"{\"a\":1}"}]}`,
	`{"output":[{"type":"custom_tool_call","call_id":"c","name":"clock","input":"x"}]}`,
	`{"output":[{"type":"custom_tool_call","call_id":"c","name":"clock","input":"x"},{"type":"function_call","call_id":"d","name":"clock","arguments":"{}"}]}`,
	"{\"output\":[{\"type\":\"function_call\",\"call_id\":\"c\",\"name\":\"clock\",\"arguments\":\"{\\\"a\\\":\\\"\xff\\\"}\"}]}",
	`{"output":[{"type":"message","role":"assistant","content":[{"type":"output_text","text":"<tool_call>{\"name\":\"clock\",\"arguments\":{}}</tool_call>"}]}]}`,
	`{"output":[{"type":"message","role":"assistant","content":[{"type":"output_text","text":"<think>hm</think>so"}]}]}`,
	`{"output":[{"type":"compaction","id":"cmp_1","encrypted_content":"x"},{"type":"message","role":"assistant","content":[{"type":"output_text","text":"said"},{"type":"a new one"},7]},{"type":"a_new_one","x":1},7,null]}`,
}

// A reading is what is read of an answer.
type reading struct {
	deltas   []string
	response inference.Response
	failure  *inference.Error
}

func (r reading) String() string {
	text := "  " + strings.Join(r.deltas, " ") + "\n"
	if f := r.failure; f != nil {
		return text + fmt.Sprintf("  %s, code %q, %s: %s", f.Class, f.Code, brief(f.Usage), f.Detail)
	}
	res, raw := r.response, string(r.response.Raw)
	res.Raw = nil
	return text + "  " + brief(res) + "\n  raw " + raw
}

// brief returns a value as JSON without empty members.
func brief(v any) string {
	data, _ := json.Marshal(v) //nolint:errchkjson // texts and numbers
	for _, empty := range []string{`"[A-Za-z0-9]+":(""|null|false|{})`, `"Attempts":0`, `"Bytes":0`} {
		data = regexp.MustCompile(`(,`+empty+`|`+empty+`,)`).ReplaceAll(data, nil)
	}
	return strings.ReplaceAll(strings.ReplaceAll(string(data), `,"Sent":{"Bytes":0}`, ""), `,"Sent":{}`, "")
}

// readAnswer reads an answer to a request with tools that may have 100 tokens.
func readAnswer(t *testing.T, answer io.Reader, stream bool) (r reading) {
	t.Helper()
	res := &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}},
		ContentLength: -1, ProtoMajor: 1}
	if stream {
		res.Header.Set("Content-Type", "text/event-stream; charset=utf-8")
	}
	req := inference.Request{MaxOutputTokens: 100, Tools: []inference.ToolDefinition{{Name: "clock"},
		{Name: "read_file"}}}
	r.response, r.failure = responses.Read(t.Context(), res, answer, req, inference.PlainHabit(),
		func(d inference.Delta) {
			if d.Done {
				d.Name = "is whole"
			}
			r.deltas = append(r.deltas, fmt.Sprintf("%s %d %s %q;", d.Kind, d.Index, d.Name, d.Text))
		})
	return r
}

var typeOf = regexp.MustCompile(`^\{"type":"([^"]*)"`)

// streamOf returns lines as a stream of events, with or without their types in lines of their own.
func streamOf(lines string, named bool) string {
	var stream strings.Builder
	for line := range strings.SplitSeq(lines, "\n") {
		if m := typeOf.FindStringSubmatch(line); m != nil && named {
			stream.WriteString("event: " + m[1] + "\n")
		}
		stream.WriteString("data: " + line + "\n\n")
	}
	return stream.String()
}

// TestAnswersOfServers compares everything that is read of answers with testdata. The size of the pieces in which an
// answer arrives, its lines with types and the ends of its lines change nothing. A stream that is cut is a failure.
func TestAnswersOfServers(t *testing.T) {
	var lines []string
	for _, answer := range answersOfServers {
		first, _, stream := strings.Cut(answer, "\n")
		sent := answer
		if stream {
			sent = streamOf(answer, true)
		}
		whole := readAnswer(t, strings.NewReader(sent), stream)
		lines = append(lines, fmt.Sprintf("%s\n%s", answer, whole))
		again := map[string]io.Reader{"one byte at a time": iotest.OneByteReader(strings.NewReader(sent))}
		if stream {
			again["without lines of types"] = strings.NewReader(": comment\n\n" + streamOf(answer, false))
			again["other ends of lines"] = strings.NewReader(strings.ReplaceAll(sent, "\n", "\r\n"))
			again["more after its end"] = io.MultiReader(strings.NewReader(sent+"data: [DONE]\n\n"),
				iotest.ErrReader(errors.New("reset")))
		}
		if whole.failure != nil {
			delete(again, "more after its end")
		}
		for how, from := range again {
			if got := readAnswer(t, from, stream); got.String() != whole.String() {
				t.Errorf("%s\n%s, it is\n%s\nwant\n%s", first, how, got, whole)
			}
		}
		last := strings.LastIndex(sent, "data: {")
		for cut := 0; stream && whole.failure == nil && cut < len(sent)-3; cut += 1 + cut%23 {
			if got := readAnswer(t, strings.NewReader(sent[:cut]), true); got.failure == nil ||
				got.failure.Class != inference.ClassTransport {
				t.Errorf("%s\ncut after %q (the last event begins at %d), it is\n%s", first,
					sent[max(0, cut-40):cut], last, got)
				break
			}
		}
	}
	golden.File(t, "testdata/answers.txt", strings.Join(lines, "\n")+"\n")
}
