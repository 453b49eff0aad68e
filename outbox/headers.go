package outbox

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"unicode/utf8"
)

// parseHeaders reads the headers column: a JSON object of strings or arrays of strings. The second result says why the
// event can never be stored, or "". Names come out sorted, so the message is a function of the row.
func parseHeaders(data []byte) ([]Header, string) {
	if len(data) == 0 || string(data) == "{}" {
		return nil, ""
	}
	if !utf8.Valid(data) { // the JSON decoder would put other characters in
		return nil, "its headers are not UTF-8"
	}
	var object map[string]any
	if err := json.Unmarshal(data, &object); err != nil || object == nil {
		return nil, "its headers are not a JSON object"
	}
	headers := make([]Header, 0, len(object))
	for _, name := range slices.Sorted(maps.Keys(object)) {
		if fault := headerNameFault(name); fault != "" {
			return nil, fault
		}
		values, ok := object[name].([]any)
		if !ok {
			values = []any{object[name]}
		}
		for _, v := range values {
			s, ok := v.(string)
			if !ok {
				return nil, fmt.Sprintf("the header %q is not a string or an array of strings", name)
			}
			if fault := valueFault(fmt.Sprintf("the header %q", name), s); fault != "" {
				return nil, fault
			}
			headers = append(headers, Header{Name: name, Value: s})
		}
	}
	return headers, ""
}
