package loose_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"turnkeeper/inference/openai/internal/loose"
)

func TestMembersAndElements(t *testing.T) {
	for _, text := range []string{
		``, `1`, `"{"`, `null`, `{}`, `[]`, ` `[:0], "{ \n}", `[ ]`,
		`{"a":1,"b":"x,}","c":[1,{"d":"]"}],"e":{"f":{}},"g":null,"h":-1.5e3}`,
		"{ \"a\" : true ,\r\n\t\"\\u0062\\\"\" : \"\\\\\" , \"c\":\"\\\"}\" }",
		`[1,"a\\",[],{"a":[]},null , {} ,"]"]`, `{"a":1,"a":2}`,
	} {
		var object map[string]json.RawMessage
		var array []json.RawMessage
		if _ = json.Unmarshal([]byte(text), &object); object == nil {
			object = map[string]json.RawMessage{}
		}
		_ = json.Unmarshal([]byte(text), &array)
		members := map[string]json.RawMessage{}
		for name, value := range loose.Members([]byte(text)) {
			members[string(name)] = value
		}
		elements := array[:0:0]
		for value := range loose.Elements([]byte(text)) {
			elements = append(elements, value)
		}
		if diff := cmp.Diff(object, members); diff != "" {
			t.Errorf("members of %s (-want +got):\n%s", text, diff)
		}
		if diff := cmp.Diff(array, elements); diff != "" {
			t.Errorf("elements of %s (-want +got):\n%s", text, diff)
		}
	}
}
