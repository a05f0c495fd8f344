package batch

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"onnxquant/internal/msg"
	"onnxquant/onnxq/attest"
	"onnxquant/onnxq/verify"
)

// Status says what became of a job.
type Status string

const (
	Done    Status = "done"    // the output is in the folder
	Refused Status = "refused" // the gate kept the output out of the folder
	Failed  Status = "failed"  // there is no output, or not the one of this run
)

// Record is a line of the manifest: what became of a job. Of several records of an output the newest one holds.
type Record struct {
	SchemaVersion int    `json:"schema_version"`  // 1
	Out           string `json:"out"`             // name of the output in the folder, with /
	In            string `json:"in"`              // the model that was converted
	Status        Status `json:"status"`          // done, refused or failed
	Error         string `json:"error,omitempty"` // why there is no output

	Options []string      `json:"options"`        // flags of the conversion
	Gate    string        `json:"gate,omitempty"` // verdict>= and the least verdict that was allowed; none: not judged
	Version string        `json:"version"`        // of onnxquant
	Inputs  []attest.File `json:"inputs"`         // the model, its external data, and files that options name
	Outputs []attest.File `json:"outputs"`        // the model first; names in the folder, with /

	Judged   *verify.Judged `json:"judged,omitempty"` // what verify found
	Figures  *Figures       `json:"figures,omitempty"`
	Warnings []string       `json:"warnings,omitempty"`

	Started time.Time `json:"started"`
	Seconds float64   `json:"seconds"`
}

// Figures of a conversion.
type Figures struct {
	InBytes   int64    `json:"in_bytes"`                // of the model with its external data
	OutBytes  int64    `json:"out_bytes"`               // of the output with its external data
	Quantized int      `json:"quantized"`               // number of quantized tensors
	Coverage  float64  `json:"coverage"`                // share of the bytes of float tensors that are quantized, 0 to 1
	WorstSQNR *float64 `json:"worst_sqnr_db,omitempty"` // the least of quantized weights, in dB
}

// unquantized reports whether nothing is quantized, though the options ask for it: --float16 alone does not.
func (r *Record) unquantized() bool {
	return r.Figures != nil && r.Figures.Quantized == 0 && (!has(r.Options, "float16", "bfloat16") || has(r.Options, "bits", "format", "precision-info"))
}

// has reports whether options of a job, as --NAME=VALUE, set one of some flags.
func has(options []string, names ...string) bool {
	return slices.ContainsFunc(options, func(word string) bool {
		name, value, _ := strings.Cut(strings.TrimPrefix(word, "--"), "=")
		return slices.Contains(names, name) && value != "false"
	})
}

const schemaVersion = 1

// gateText is a gate as --gate takes it. The verdict alone would read as that of the output.
func gateText(least verify.Verdict) string {
	if least == "" {
		return ""
	}
	return "verdict>=" + string(least)
}

var manifestName = regexp.MustCompile(`^manifest(\.\d+-of-\d+)?\.jsonl$`)

// records reads what the manifests of all shares say, the newest record of each output. Records of failures do not count: the output
// of an earlier run may still be the one that is wanted. Nor does a line that a crash cut short.
func records(folder string) (map[string]*Record, error) {
	entries, err := os.ReadDir(folder)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	newest := map[string]*Record{}
	for _, e := range entries {
		if !manifestName.MatchString(e.Name()) {
			continue
		}
		f, err := os.Open(filepath.Join(folder, e.Name()))
		if err != nil {
			return nil, err
		}
		err = eachRecord(f, func(r *Record) {
			if old := newest[r.Out]; r.Status != Failed && (old == nil || !r.Started.Before(old.Started)) {
				newest[r.Out] = r
			}
		})
		f.Close()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name(), err)
		}
	}
	return newest, nil
}

// eachRecord calls f for each whole line.
func eachRecord(r io.Reader, f func(r *Record)) error {
	b := bufio.NewReader(r)
	for n := 1; ; n++ {
		line, err := b.ReadBytes('\n')
		if err == io.EOF {
			return nil // what is left has no end: it is being written, or was never finished
		}
		if err != nil {
			return err
		}
		var record Record
		if err := json.Unmarshal(line, &record); err != nil {
			return fmt.Errorf("line %d is no record of a batch: %w; move the file away to begin anew", n, err)
		}
		if record.SchemaVersion != schemaVersion {
			return fmt.Errorf("line %d has the version %d, and this program knows %d; move the file away to begin anew", n, record.SchemaVersion, schemaVersion)
		}
		f(&record)
	}
}

// manifest is a manifest to which records are added.
type manifest struct {
	f   *os.File
	end int64 // of the last whole line
}

// openManifest opens a manifest, and removes a last line that a crash cut short.
func openManifest(path string) (*manifest, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, msg.Cause(err))
	}
	end, err := wholeLines(f)
	if err == nil {
		err = f.Truncate(end)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &manifest{f, end}, nil
}

// wholeLines returns the length of a file up to the end of its last line.
func wholeLines(f *os.File) (int64, error) {
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return 0, err
	}
	b := make([]byte, 64<<10)
	for end := size; end > 0; {
		n := min(end, int64(len(b)))
		if _, err := f.ReadAt(b[:n], end-n); err != nil {
			return 0, err
		}
		if i := bytes.LastIndexByte(b[:n], '\n'); i >= 0 {
			return end - n + int64(i) + 1, nil
		}
		end -= n
	}
	return 0, nil
}

// add writes a record, which is on the disk when add returns. After an error nothing is left of it, as on a full disk, so that
// a later record is a line of its own.
func (m *manifest) add(r *Record) error {
	var line bytes.Buffer
	to := json.NewEncoder(&line)
	to.SetEscapeHTML(false) // people read it
	if err := to.Encode(r); err != nil {
		return err
	}
	n, err := m.f.WriteAt(line.Bytes(), m.end)
	if err == nil {
		err = m.f.Sync()
	}
	if err != nil {
		return errors.Join(fmt.Errorf("%s: %w", m.f.Name(), msg.Cause(err)), m.f.Truncate(m.end))
	}
	m.end += int64(n)
	return nil
}

// String describes an output in a line.
func (r *Record) String() string {
	text := r.Out
	if f := r.Figures; f != nil {
		text += fmt.Sprintf("  %.1f %% quantized, %s", 100*f.Coverage, msg.Resized(f.InBytes, f.OutBytes))
	}
	if r.Judged != nil {
		text += ", " + string(r.Judged.Verdict)
	}
	return text + fmt.Sprintf(", %.1f s", r.Seconds)
}
