package redact

import (
	"encoding/json"
	"fmt"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// WrapCore is a core that masks what passes to inner: messages, names, stacks,
// and fields of every kind that can hold text. A field without secrets passes
// unchanged. In one with secrets, errors, stringers and byte strings become
// text, and values, lists and objects become JSON, or text where masking would
// break the JSON. Keys of fields are not masked. Wrap the cores of a tee, not the
// tee: it would write what one of its cores takes to all of them.
func (m *Masker) WrapCore(inner zapcore.Core) zapcore.Core {
	return &maskingCore{Core: inner, masker: m}
}

type maskingCore struct {
	zapcore.Core
	masker *Masker
}

func (c *maskingCore) With(fields []zapcore.Field) zapcore.Core {
	return &maskingCore{Core: c.Core.With(c.masker.fields(fields)), masker: c.masker}
}

func (c *maskingCore) Check(entry zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	// What inner would add to the entry is itself, so that it would be written
	// to directly; whether it adds anything is its own decision all the same.
	if c.Core.Check(entry, nil) == nil {
		return checked
	}
	return checked.AddCore(entry, c)
}

func (c *maskingCore) Write(entry zapcore.Entry, fields []zapcore.Field) error {
	entry.Message = c.masker.String(entry.Message)
	entry.LoggerName = c.masker.String(entry.LoggerName)
	entry.Stack = c.masker.String(entry.Stack)
	return c.Core.Write(entry, c.masker.fields(fields))
}

func (m *Masker) fields(fields []zapcore.Field) []zapcore.Field {
	masked := make([]zapcore.Field, len(fields))
	for i, field := range fields {
		masked[i] = m.field(field)
	}
	return masked
}

func (m *Masker) field(field zapcore.Field) zapcore.Field {
	switch field.Type {
	case zapcore.StringType:
		field.String = m.String(field.String)
		return field
	case zapcore.ByteStringType, zapcore.BinaryType:
		if b, ok := field.Interface.([]byte); ok {
			field.Interface = m.Bytes(b)
		}
		return field
	case zapcore.ErrorType, zapcore.StringerType:
		return m.printed(field)
	case zapcore.ReflectType, zapcore.ArrayMarshalerType, zapcore.ObjectMarshalerType, zapcore.InlineMarshalerType:
		return m.encoded(field)
	default: // numbers, times, true and false, namespaces
		return field
	}
}

// printed masks what is logged by its text. zap writes some errors a second
// time, at length; such an error is kept only when that is clean as well.
func (m *Masker) printed(field zapcore.Field) zapcore.Field {
	encoder := zapcore.NewMapObjectEncoder()
	field.AddTo(encoder)
	for _, value := range encoder.Fields {
		if m.finds(fmt.Sprint(value)) {
			return zap.String(field.Key, m.String(fmt.Sprint(encoder.Fields[field.Key])))
		}
	}
	return field
}

// encoded masks what is logged by its structure.
func (m *Masker) encoded(field zapcore.Field) zapcore.Field {
	encoder := zapcore.NewMapObjectEncoder()
	field.AddTo(encoder)
	if field.Type == zapcore.InlineMarshalerType {
		return m.inline(field, encoder.Fields)
	}
	text := encode(encoder.Fields[field.Key])
	if !m.finds(text) {
		return field
	}
	return raw(field.Key, m.String(text))
}

// inline masks an object whose fields stand beside the others.
func (m *Masker) inline(field zapcore.Field, values map[string]any) zapcore.Field {
	if !m.finds(encode(values)) {
		return field
	}
	return zap.Inline(zapcore.ObjectMarshalerFunc(func(to zapcore.ObjectEncoder) error {
		for key, value := range values {
			raw(key, m.String(encode(value))).AddTo(to)
		}
		return nil
	}))
}

func raw(key, text string) zapcore.Field {
	if json.Valid([]byte(text)) {
		return zap.Reflect(key, json.RawMessage(text))
	}
	return zap.String(key, text)
}

// encode writes a value as JSON, or as fmt does where JSON cannot.
func encode(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprintf("%+v", value)
	}
	return string(text)
}
