package words

import (
	"encoding/json"
	"strings"
)

// Field is one member of a JSON object that a holder left as metadata.
type Field struct {
	Name  string
	Value string // the text of a string; the JSON of anything else
}

// Fields returns the members of metadata that is a JSON object, in their order. For other metadata, ok is false.
func Fields(metadata string) (fields []Field, ok bool) {
	if !strings.HasPrefix(strings.TrimLeft(metadata, " \t\r\n"), "{") || !json.Valid([]byte(metadata)) {
		return nil, false
	}
	decoder := json.NewDecoder(strings.NewReader(metadata))
	_, _ = decoder.Token()
	for decoder.More() { // it is valid, so nothing fails
		name, _ := decoder.Token()
		var raw json.RawMessage
		_ = decoder.Decode(&raw)
		f := Field{Name: name.(string), Value: string(raw)}
		if raw[0] == '"' {
			_ = json.Unmarshal(raw, &f.Value)
		}
		fields = append(fields, f)
	}
	return fields, true
}

// Value returns the value of a field, or "" if there is no such field.
func Value(fields []Field, name string) string {
	for _, f := range fields {
		if f.Name == name {
			return f.Value
		}
	}
	return ""
}

// Metadata writes metadata on one line: an object as name=value, anything else unchanged.
func Metadata(metadata string) string {
	fields, ok := Fields(metadata)
	if !ok {
		return Escape(metadata)
	}
	shown := make([]string, len(fields))
	for i, f := range fields {
		value := Escape(f.Value)
		if value == "" || strings.ContainsAny(value, ` ="`) && value[0] != '{' && value[0] != '[' {
			value = `"` + strings.ReplaceAll(value, `"`, `\"`) + `"`
		}
		shown[i] = Escape(f.Name) + "=" + value
	}
	return strings.Join(shown, " ")
}
