package balance

import (
	"encoding/base64"
	"encoding/json"
	"slices"

	"google.golang.org/protobuf/proto"

	"onnxquant/internal/onnxpb"
)

// Key is the key of the record of factors in metadata_props. It has the exponents of regions, a byte each, in base64, by the
// names of the regions. Without it, nobody could tell the scaled weights from other ones.
const Key = "onnxquant.balance"

// Record adds exponents to the record of a model, whose lists may be shared. It returns by how many bytes the model grows.
func Record(m *onnxpb.ModelProto, exponents map[string][]int8) int64 {
	if len(exponents) == 0 {
		return 0
	}
	all := Recorded(m)
	if all == nil {
		all = map[string][]int8{}
	}
	for name, more := range exponents { // of a model that has factors already
		sum := slices.Clone(more)
		for i, e := range all[name] {
			if i < len(sum) {
				sum[i] = int8(max(min(int(sum[i])+int(e), 127), -127))
			}
		}
		all[name] = sum
	}
	coded := map[string]string{}
	for name, list := range all {
		raw := make([]byte, len(list))
		for i, e := range list {
			raw[i] = byte(e)
		}
		coded[name] = base64.StdEncoding.EncodeToString(raw)
	}
	text, err := json.Marshal(coded)
	if err != nil {
		return 0 // it has strings only
	}
	before := proto.Size(&onnxpb.ModelProto{MetadataProps: m.MetadataProps})
	props := slices.DeleteFunc(slices.Clone(m.MetadataProps), func(e *onnxpb.StringStringEntryProto) bool { return e.GetKey() == Key })
	m.MetadataProps = append(props, &onnxpb.StringStringEntryProto{Key: new(Key), Value: new(string(text))})
	return int64(proto.Size(&onnxpb.ModelProto{MetadataProps: m.MetadataProps}) - before)
}

// Recorded returns the exponents that a model records; nil if it records none.
func Recorded(m *onnxpb.ModelProto) map[string][]int8 {
	var coded map[string]string
	for _, e := range m.MetadataProps {
		if e.GetKey() == Key && json.Unmarshal([]byte(e.GetValue()), &coded) != nil {
			return nil
		}
	}
	var all map[string][]int8
	for name, text := range coded {
		raw, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return nil
		}
		list := make([]int8, len(raw))
		for i, b := range raw {
			list[i] = int8(b)
		}
		if all == nil {
			all = map[string][]int8{}
		}
		all[name] = list
	}
	return all
}

// Between returns the exponents that one model records beyond those of another one, which it was made from.
func Between(from, to *onnxpb.ModelProto) map[string][]int8 {
	all, had := Recorded(to), Recorded(from)
	for name, list := range all {
		for i, e := range had[name] {
			if i < len(list) {
				list[i] -= e
			}
		}
		if !slices.ContainsFunc(list, func(e int8) bool { return e != 0 }) {
			delete(all, name)
		}
	}
	return all
}
