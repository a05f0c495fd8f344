package batch

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"onnxquant/internal/msg"
)

// jobKeys are the keys of a job.
var jobKeys = []string{"in", "out", "options"}

func noKey(quoted string) string { return quoted + ` is no key of a job: want "in", "out", "options"` }

// checkKeys refuses a key of a job that is spelled with capitals, and any key that stands twice: encoding/json takes both.
func checkKeys(job []byte) error {
	d := json.NewDecoder(bytes.NewReader(job))
	var objects []map[string]bool // that the decoder is in; nil: an array
	isKey := false
	for {
		token, err := d.Token()
		if err != nil {
			return nil // Decode has read the object
		}
		switch t := token.(type) {
		case json.Delim:
			switch t {
			case '{':
				objects = append(objects, map[string]bool{})
			case '[':
				objects = append(objects, nil)
			default:
				objects = objects[:len(objects)-1]
			}
			if len(objects) == 0 {
				return nil
			}
			isKey = objects[len(objects)-1] != nil
			continue
		case string:
			if isKey {
				keys := objects[len(objects)-1]
				switch {
				case keys[t]:
					return fmt.Errorf("%s is given twice", msg.Quote(t))
				case len(objects) == 1 && !slices.Contains(jobKeys, t):
					return errors.New(noKey(msg.Quote(t)))
				}
				keys[t], isKey = true, false
				continue
			}
		}
		isKey = len(objects) > 0 && objects[len(objects)-1] != nil
	}
}
