package preset

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
)

// member is a member of a JSON object.
type member struct {
	key   string
	value json.RawMessage
}

// object is a JSON object in its order.
type object []member

func (o *object) UnmarshalJSON(text []byte) error {
	d := json.NewDecoder(bytes.NewReader(text))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return fmt.Errorf("want an object, got %.20s", text)
	}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return err
		}
		m := member{key: t.(string)} // as the decoder promises
		if err := d.Decode(&m.value); err != nil {
			return err
		}
		*o = append(*o, m)
	}
	_, err := d.Token()
	return err
}

func (o object) MarshalJSON() ([]byte, error) {
	b := []byte{'{'}
	for i, m := range o {
		if i > 0 {
			b = append(b, ',')
		}
		key, err := json.Marshal(m.key)
		if err != nil {
			return nil, err
		}
		b = append(append(append(b, key...), ':'), m.value...)
	}
	return append(b, '}'), nil
}

// get returns a member, which it adds if it is not there.
func (o *object) get(key string) *member {
	i := slices.IndexFunc(*o, func(m member) bool { return m.key == key })
	if i < 0 {
		*o = append(*o, member{key: key, value: json.RawMessage("{}")})
		i = len(*o) - 1
	}
	return &(*o)[i]
}

// set sets the member at a path of objects.
func (o *object) set(path []string, value json.RawMessage) error {
	m := o.get(path[0])
	if len(path) > 1 {
		var inner object
		if string(m.value) != "null" {
			if err := json.Unmarshal(m.value, &inner); err != nil {
				return fmt.Errorf("%s: %w", path[0], err)
			}
		}
		if err := inner.set(path[1:], value); err != nil {
			return fmt.Errorf("%s: %w", path[0], err)
		}
		text, err := json.Marshal(inner)
		if err != nil {
			return err
		}
		value = text
	}
	m.value = value
	return nil
}

// lookup returns the value at a path of objects, or nil.
func (o object) lookup(path []string) json.RawMessage {
	for _, m := range o {
		if m.key != path[0] {
			continue
		}
		if len(path) == 1 {
			return m.value
		}
		var inner object
		if json.Unmarshal(m.value, &inner) != nil {
			return nil
		}
		return inner.lookup(path[1:])
	}
	return nil
}

// maxConfig is the largest size of a file of settings.
const maxConfig = 16 << 20

// SetCounts sets counts, by the name of an output, in the object at a path of a JSON file. It keeps
// the other members and their order. A number or true in the place of the object is taken as the float
// model's, called whole. SetCounts replaces the file instead of writing into it, because it may be a
// link.
func SetCounts(file string, path []string, counts map[string]int, whole []string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	text, err := io.ReadAll(io.LimitReader(f, maxConfig))
	f.Close()
	if err != nil {
		return err
	}
	var top, list object
	if err := json.Unmarshal(text, &top); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if old := top.lookup(path); json.Unmarshal(old, &list) != nil {
		list = nil
		for _, name := range whole {
			if n := string(old); n != "" && n != "false" && n != "null" && n != "0" {
				list.get(name).value = old
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		list.get(name).value = fmt.Appendf(nil, "%d", counts[name])
	}
	value, err := json.Marshal(list)
	if err != nil {
		return err
	}
	if err := top.set(path, value); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	var out bytes.Buffer
	b, err := json.Marshal(top)
	if err == nil {
		err = json.Indent(&out, b, "", "  ")
	}
	if err != nil {
		return err
	}
	out.WriteByte('\n')
	if err := os.Remove(file); err != nil {
		return err
	}
	return os.WriteFile(file, out.Bytes(), info.Mode().Perm()|0o200)
}
