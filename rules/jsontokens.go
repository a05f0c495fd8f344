package rules

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math"
	"strconv"
	"unicode/utf8"

	"onnxquant/internal/msg"
)

// position is a line and a column of a document. Both count from 1; columns count characters.
type position struct{ line, column int }

func (p position) String() string { return fmt.Sprintf("line %d, column %d", p.line, p.column) }

// after is the position after text, which begins at p.
func (p position) after(text []byte) position {
	if lines := bytes.Count(text, []byte("\n")); lines > 0 {
		p.line += lines
		p.column = 1
		text = text[bytes.LastIndexByte(text, '\n')+1:]
	}
	p.column += utf8.RuneCount(text)
	return p
}

// jsonError is an error at a position of a JSON document.
type jsonError struct {
	pos     position
	message string
}

func (e *jsonError) Error() string { return fmt.Sprintf("%v: %s", e.pos, e.message) }

// jsonTokens reads a well-formed JSON document token by token, with positions.
type jsonTokens struct {
	data   []byte
	dec    *json.Decoder
	offset int // of the last token
	pos    position
}

type jsonToken struct {
	value json.Token
	pos   position
}

// newJSONTokens checks that data is one JSON value in UTF-8.
func newJSONTokens(data []byte) (*jsonTokens, error) {
	start := position{1, 1}
	if i := invalidUTF8(data); i >= 0 {
		return nil, &jsonError{start.after(data[:i]), "not UTF-8 text"}
	}
	var whole json.RawMessage
	if err := json.Unmarshal(data, &whole); err != nil {
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			wrong := min(max(int(syntax.Offset)-1, 0), len(data))
			for wrong > 0 && wrong < len(data) && !utf8.RuneStart(data[wrong]) {
				wrong-- // to the first byte of the character
			}
			return nil, &jsonError{start.after(data[:wrong]), explainSyntax(syntax, data[wrong:])}
		}
		return nil, err
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	return &jsonTokens{data: data, dec: dec, pos: start}, nil
}

// explainSyntax explains a syntax error; rest is the document from the error on.
func explainSyntax(err *json.SyntaxError, rest []byte) string {
	for _, word := range []string{"NaN", "Infinity"} {
		if bytes.HasPrefix(rest, []byte(word)) {
			return word + " is no number of JSON; numbers must be finite"
		}
	}
	return err.Error()
}

// invalidUTF8 returns the offset of the first invalid byte, or -1.
func invalidUTF8(data []byte) int {
	for i := 0; i < len(data); {
		r, width := utf8.DecodeRune(data[i:])
		if r == utf8.RuneError && width == 1 {
			return i
		}
		i += width
	}
	return -1
}

func (t *jsonTokens) next() jsonToken {
	rest := t.data[t.dec.InputOffset():]
	begin := len(t.data) - len(bytes.TrimLeft(rest, " \t\r\n,:"))
	t.pos = t.pos.after(t.data[t.offset:begin])
	t.offset = begin
	value, err := t.dec.Token()
	if err != nil {
		panic(err) // newJSONTokens checked the document
	}
	return jsonToken{value, t.pos}
}

// keys yields the keys of the object whose opening brace is the last token. The body of the loop
// must read the value of each key.
func (t *jsonTokens) keys() iter.Seq2[string, jsonToken] {
	return func(yield func(string, jsonToken) bool) {
		for t.dec.More() {
			key := t.next()
			if !yield(key.value.(string), key) {
				return
			}
		}
		t.next() // the closing brace
	}
}

// errUnknownKey says that an object has no such key.
var errUnknownKey = errors.New("unknown key")

// object is fields for an object whose opening brace comes next.
func (t *jsonTokens) object(what string, value func(key string, t jsonToken) error) (given map[string]bool, err error) {
	return t.fields(what, t.next(), value)
}

// fields reads the object that begins with first. It calls value with each key and the first token
// of the key's value. It fails if a key is given twice, or if value returns errUnknownKey.
func (t *jsonTokens) fields(what string, first jsonToken, value func(key string, t jsonToken) error) (given map[string]bool, err error) {
	if first.value != json.Delim('{') {
		return nil, first.errorf("%s: want an object, got %s", what, first.what())
	}
	given = map[string]bool{}
	for name, key := range t.keys() {
		if given[name] {
			return nil, key.errorf("%s is given twice", msg.Quote(name))
		}
		given[name] = true
		if err := value(name, t.next()); err == errUnknownKey {
			return nil, key.errorf("%s: %s is not known", what, msg.Quote(name))
		} else if err != nil {
			return nil, err
		}
	}
	return given, nil
}

func (t jsonToken) errorf(format string, args ...any) error {
	return &jsonError{t.pos, fmt.Sprintf(format, args...)}
}

// at gives an error the position of the token.
func (t jsonToken) at(err error) error {
	if err == nil {
		return nil
	}
	return &jsonError{t.pos, err.Error()}
}

// what describes the token in a message that expected another one.
func (t jsonToken) what() string {
	switch v := t.value.(type) {
	case json.Delim:
		if v == '[' {
			return "an array"
		}
		return "an object"
	case string:
		return "a string"
	case json.Number:
		return v.String()
	case bool:
		return strconv.FormatBool(v)
	default:
		return "null"
	}
}

func (t jsonToken) integer(name string) (int, error) {
	number, ok := t.value.(json.Number)
	if !ok {
		return 0, t.errorf("%s: want a whole number, got %s", name, t.what())
	}
	v, err := number.Float64()
	if err != nil || v != math.Trunc(v) || math.Abs(v) > math.MaxInt32 {
		return 0, t.errorf("%s %s: want a whole number of at most %d", name, number, math.MaxInt32)
	}
	return int(v), nil
}

func (t jsonToken) float(name string) (float64, error) {
	number, ok := t.value.(json.Number)
	if !ok {
		return 0, t.errorf("%s: want a number, got %s", name, t.what())
	}
	v, err := number.Float64()
	if err != nil {
		return 0, t.errorf("%s: %s is too large", name, number)
	}
	return v, nil
}

func (t jsonToken) text(name string) (string, error) {
	s, ok := t.value.(string)
	if !ok {
		return "", t.errorf("%s: want a string, got %s", name, t.what())
	}
	return s, nil
}

func (t jsonToken) bool(name string) (bool, error) {
	b, ok := t.value.(bool)
	if !ok {
		return false, t.errorf("%s: want true or false, got %s", name, t.what())
	}
	return b, nil
}
