package batch

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dustin/go-humanize/english"

	"onnxquant/internal/msg"
	"onnxquant/internal/remote"
)

// Job is one model to convert.
type Job struct {
	In      string `json:"in"`                // path of the model, or hf://OWNER/REPOSITORY[@REVISION]/PATH, or https://HOST/PATH
	Out     string `json:"out,omitempty"`     // name of the output in the folder, with /; default: that of In
	Options Flags  `json:"options,omitempty"` // flags of the conversion

	Wrong error `json:"-"` // why the job cannot be done, such as a flag that there is not; it fails with this

	place     string // where the job was given, for messages
	malformed error  // why its line says no job; see check
}

// Flags are flags of a conversion, as on its command line. In JSON they are a list of words, or an object with the
// values of flags: {"bits": 4, "zero-point": true, "exclude": ["lm_head*", "embed*"]}.
type Flags []string

// UnmarshalJSON reads a list or an object.
func (f *Flags) UnmarshalJSON(raw []byte) error {
	var words []string
	if json.Unmarshal(raw, &words) == nil {
		*f = words
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var settings map[string]any
	if err := d.Decode(&settings); err != nil {
		return errors.New(`options: want a list of words, such as ["--bits", "4"], or an object, such as {"bits": 4}`)
	}
	names := make([]string, 0, len(settings))
	for name := range settings {
		names = append(names, name)
	}
	slices.Sort(names)
	*f = nil
	for _, name := range names {
		values, ok := settings[name].([]any)
		if !ok {
			values = []any{settings[name]}
		}
		for _, v := range values {
			switch v.(type) {
			case string, bool, json.Number:
				*f = append(*f, fmt.Sprintf("--%s=%v", strings.TrimLeft(name, "-"), v))
			default:
				return fmt.Errorf("options: the value of %s is not a string, number, true, false, or a list of these", msg.Quote(name))
			}
		}
	}
	return nil
}

// longestLine is the length to which a line of jobs is read.
const longestLine = 1 << 20

// Read reads jobs from JSON lines, one job a line. Empty lines do not count. name is for messages. The error joins those of all lines.
func Read(r io.Reader, name string) (jobs []Job, err error) {
	if jobs, err = read(r, name); err != nil {
		return nil, err
	}
	var wrong wrongLines
	for _, j := range jobs {
		if j.malformed != nil {
			wrong.add(j.malformed)
		}
	}
	if err := wrong.err(); err != nil {
		return nil, err
	}
	return jobs, nil
}

// read reads jobs. Lines that say none are malformed jobs.
func read(r io.Reader, name string) (jobs []Job, err error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, longestLine)
	n := 1
	for ; lines.Scan(); n++ {
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 {
			continue
		}
		job := Job{place: fmt.Sprintf("%s:%d", name, n)}
		if err := job.decode(line); err != nil {
			job = Job{malformed: fmt.Errorf("%s: %w", job.place, err)}
		}
		jobs = append(jobs, job)
	}
	switch err := lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		jobs = append(jobs, Job{malformed: fmt.Errorf("%s:%d: the line is longer than 1 MiB", name, n)})
	case err != nil:
		return nil, fmt.Errorf("%s: %w", name, msg.Cause(err))
	}
	if len(jobs) == 0 {
		return nil, fmt.Errorf("%s: there is no job in it: %s", name, wanted)
	}
	return jobs, nil
}

// decode reads the line of a job.
func (j *Job) decode(line []byte) error {
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(j); err != nil {
		return errors.New(plain(err))
	}
	if err := checkKeys(line); err != nil {
		return err
	}
	switch rest := bytes.TrimSpace(line[d.InputOffset():]); {
	case len(rest) == 0:
	case rest[0] == '{':
		return errors.New("there is more than one object on the line")
	case rest[0] == ',':
		return errors.New("a comma follows the object: lines of jobs have none there")
	default:
		return fmt.Errorf("after the object there is more, from character %d on: %s", len(line)-len(rest)+1, wanted)
	}
	if j.In == "" {
		return errors.New(`"in" is missing: the path of a model`)
	}
	if j.Out == "" {
		j.Out = nameOf(j.In)
	}
	return nil
}

// wrongLines collects what is wrong with jobs, in their order. A file of another kind may have very many such lines.
type wrongLines struct {
	named []error
	more  int
}

func (w *wrongLines) add(err error) {
	const most = 20
	if len(w.named) == most {
		w.more++
		return
	}
	w.named = append(w.named, err)
}

func (w *wrongLines) err() error {
	if w.more > 0 {
		return errors.Join(append(w.named, fmt.Errorf("%d more %s wrong", w.more, english.PluralWord(w.more, "job is", "jobs are")))...)
	}
	return errors.Join(w.named...)
}

// wanted says what a line of jobs is.
const wanted = `want a line such as {"in": "a.onnx"} for each model, with "out" and "options" if you like`

// plain says what is wrong with a line in words of the user, not of Go.
func plain(err error) string {
	var kind *json.UnmarshalTypeError
	var syntax *json.SyntaxError
	unknown, isUnknown := strings.CutPrefix(err.Error(), "json: unknown field ")
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return "the line ends before its object does: a } or a quote is missing"
	case isUnknown:
		return noKey(unknown)
	case errors.As(err, &kind) && kind.Field == "":
		return fmt.Sprintf("the line is no object but a JSON %s: %s", kind.Value, wanted)
	case errors.As(err, &kind):
		return fmt.Sprintf("%s is a JSON %s: want a text in quotes", msg.Quote(kind.Field), kind.Value)
	case errors.As(err, &syntax):
		return fmt.Sprintf("the line is no JSON from character %d on: %s", syntax.Offset, wanted)
	}
	return err.Error()
}

// List returns the jobs that arguments stand for: files of jobs (.jsonl, or - for stdin), folders, whose models are
// taken with those of the folders in them, patterns such as models/*.onnx, and models. Lines that say no job are refused by Run,
// with all else that is wrong.
func List(args []string, stdin io.Reader) (jobs []Job, err error) {
	for _, arg := range args {
		var more []Job
		info, err := os.Stat(arg)
		switch {
		case remote.Is(arg):
			more, err = []Job{{In: arg, Out: nameOf(arg), place: remote.Plain(arg)}}, nil
		case arg == "-":
			more, err = read(stdin, "standard input")
		case err == nil && info.IsDir():
			more, err = inFolder(arg)
		case strings.EqualFold(filepath.Ext(arg), ".jsonl"):
			more, err = readFile(arg)
		case err == nil && !strings.EqualFold(filepath.Ext(arg), ".onnx"):
			err = fmt.Errorf("%s: the name of a model ends in .onnx, that of a file of jobs in .jsonl", arg)
		case err == nil:
			more = []Job{{In: arg, Out: nameOf(arg), place: arg}}
		case strings.ContainsAny(arg, "*?["):
			more, err = matching(arg)
		default:
			err = fmt.Errorf("%s: %w", arg, msg.Cause(err))
		}
		if err != nil {
			return nil, err
		}
		jobs = append(jobs, more...)
	}
	return jobs, nil
}

func readFile(name string) ([]Job, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, msg.Cause(err))
	}
	defer f.Close()
	return read(f, name)
}

// inFolder lists the models of a folder, as a conversion of the folder would.
func inFolder(root string) (jobs []Job, err error) {
	err = filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && file != root && strings.HasPrefix(d.Name(), "."):
			return fs.SkipDir
		case d.IsDir() || !strings.EqualFold(filepath.Ext(file), ".onnx"):
			return nil
		}
		name, err := filepath.Rel(root, file)
		jobs = append(jobs, Job{In: file, Out: filepath.ToSlash(name), place: file})
		return err
	})
	if err == nil && len(jobs) == 0 {
		err = fmt.Errorf("%s: no .onnx file is in the folder", root)
	}
	return jobs, err
}

func matching(pattern string) (jobs []Job, err error) {
	files, err := filepath.Glob(pattern)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", pattern, err)
	}
	for _, file := range files {
		if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() {
			jobs = append(jobs, Job{In: file, Out: nameOf(file), place: file})
		}
	}
	if len(jobs) == 0 {
		return nil, fmt.Errorf("%s: no file matches the pattern", pattern)
	}
	return jobs, nil
}

// nameOf is the name of a model's output, if none is given.
func nameOf(in string) string {
	if remote.Is(in) {
		return remote.Base(in)
	}
	return path.Base(filepath.ToSlash(in))
}

// check refuses malformed jobs, and jobs that would write one file twice, write outside of the folder, or replace an input.
func check(jobs []Job, folder string) error {
	inputs, names := map[string]string{}, map[string]string{}
	for _, j := range jobs {
		if abs, err := filepath.Abs(j.In); err == nil && j.malformed == nil {
			inputs[abs] = j.At()
		}
	}
	var wrong wrongLines
	for _, j := range jobs {
		if j.malformed != nil {
			wrong.add(j.malformed)
			continue
		}
		if err := checkName(j.Out); err != nil {
			wrong.add(fmt.Errorf("%s: out %s: %w", j.At(), msg.Quote(j.Out), err))
			continue
		}
		key := strings.ToLower(path.Clean(j.Out)) // some file systems do not tell case
		if other, ok := names[key]; ok {
			wrong.add(fmt.Errorf(`%s and %s have the same output %s; give "out" in a file of jobs`, other, j.At(), msg.Quote(j.Out)))
			continue
		}
		names[key] = j.At()
		abs, err := filepath.Abs(filepath.Join(folder, filepath.FromSlash(j.Out)))
		if err != nil {
			return err
		}
		if other, ok := inputs[abs]; ok {
			wrong.add(fmt.Errorf("%s: out %s is the input of %s; choose another folder", j.At(), msg.Quote(j.Out), other))
		}
	}
	return wrong.err()
}

func checkName(out string) error {
	switch {
	case strings.ContainsRune(out, 0):
		return errors.New("want a name without the character 0")
	case !filepath.IsLocal(filepath.FromSlash(out)) || strings.ContainsRune(out, '\\'):
		return errors.New("want a name in the folder, with / between its parts")
	case !strings.EqualFold(path.Ext(out), ".onnx"):
		return errors.New("want a name that ends in .onnx")
	case path.Clean(out) != out:
		return fmt.Errorf("write %s", msg.Quote(path.Clean(out)))
	}
	return nil
}

// At says where a job was given: a line of a file, or the model.
func (j *Job) At() string {
	if j.place == "" {
		return msg.Quote(remote.Plain(j.In))
	}
	return j.place
}

// located says where a job was given before an error about it, if the error does not say so.
func (j *Job) located(err error) error {
	if err == nil || j.place == "" || j.place == remote.Plain(j.In) || strings.HasPrefix(err.Error(), j.place+": ") {
		return err
	}
	return fmt.Errorf("%s: %w", j.place, err)
}
