package redact

import (
	"encoding/json"
	"fmt"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// WrapCore returns a core that masks entries before inner writes them: messages, names, stacks, and fields
// that can have text. A field without secrets is unchanged. In a field with secrets, errors, stringers and
// byte strings become text, and values, lists and objects become JSON, or text if masking would break the
// JSON. Keys of fields are not masked. Wrap the cores of a tee, not the tee, which would write an entry
// accepted by one core to all of them.
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
	// inner.Check would add inner itself, which would bypass the masking: call it only for its decision.
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
	default: // numbers, times, bools, namespaces
		return field
	}
}

// printed masks a field that is logged as text. zap also logs the verbose form of some errors; such an
// error is unchanged only if that has no secrets either.
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

// encoded masks a field that is logged as a structure.
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

// inline masks an object whose fields are added to those of the entry.
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

// encode returns a value as JSON, or as formatted by fmt if it cannot be encoded.
func encode(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprintf("%+v", value)
	}
	return string(text)
}
