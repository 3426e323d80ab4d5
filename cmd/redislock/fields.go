package main

import (
	"encoding/json"
	"strings"

	"github.com/redislock/redislock/cmd/redislock/internal/term"
)

// field is one member of a JSON object that a holder left as metadata.
type field struct {
	name  string
	value string // of a string what it says; of anything else its JSON
}

// fieldsOf returns the members of metadata that is a JSON object, in their order; ok is false for any other metadata.
func fieldsOf(metadata string) (fields []field, ok bool) {
	if !strings.HasPrefix(strings.TrimLeft(metadata, " \t\r\n"), "{") || !json.Valid([]byte(metadata)) {
		return nil, false
	}
	decoder := json.NewDecoder(strings.NewReader(metadata))
	if _, err := decoder.Token(); err != nil {
		return nil, false
	}
	for decoder.More() {
		name, err := decoder.Token()
		if err != nil {
			return nil, false
		}
		var raw json.RawMessage
		if err := decoder.Decode(&raw); err != nil {
			return nil, false
		}
		f := field{value: string(raw)}
		f.name, _ = name.(string)
		if raw[0] == '"' {
			_ = json.Unmarshal(raw, &f.value)
		}
		fields = append(fields, f)
	}
	return fields, true
}

// valueOf returns the value of a field of metadata, "" if it has none.
func valueOf(fields []field, name string) string {
	for _, f := range fields {
		if f.name == name {
			return f.value
		}
	}
	return ""
}

// showMetadata writes metadata on one line: an object as name=value, anything else as it is.
func showMetadata(metadata string) string {
	fields, ok := fieldsOf(metadata)
	if !ok {
		return term.Escape(metadata)
	}
	shown := make([]string, len(fields))
	for i, f := range fields {
		value := term.Escape(f.value)
		if value == "" || strings.ContainsAny(value, ` ="`) && value[0] != '{' && value[0] != '[' {
			value = `"` + strings.ReplaceAll(value, `"`, `\"`) + `"`
		}
		shown[i] = term.Escape(f.name) + "=" + value
	}
	return strings.Join(shown, " ")
}
