// Package batch converts many models and keeps a record, from which the next run goes on.
//
// [Run] gets a list of [Job] values and a folder for the outputs. Several models are converted at a time, as many as memory and
// processors allow. The manifest in the folder has a [Record] for each job, a JSON object a line: it is written when
// the output is in place, and is on the disk before the next job of the same worker starts. A later run leaves out what is
// done and unchanged: the same input, options, version and output. So a run that was killed at any time is repeated to
// finish it, and only what was in work is done again.
//
// [Options.Shard] is a stable share of the jobs, for several machines that write to one folder.
//
// The conversion itself is a function of the caller, [Options.Convert]; [Program.Convert] runs a program for each model, so that
// the memory and the failures of one do not concern the others.
package batch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dustin/go-humanize/english"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"onnxquant/internal/commit"
	"onnxquant/internal/msg"
	"onnxquant/internal/remote"
	"onnxquant/internal/work"
	"onnxquant/onnxq/attest"
	"onnxquant/onnxq/verify"
	"onnxquant/spec"
)

// Options are the options of Run.
type Options struct {
	Folder  string         // where the outputs and the manifest go, made if it does not exist; or objects, s3://BUCKET/FOLDER
	Shard   spec.Share     // the share of the jobs to do
	Version string         // of the program; what another one made is made again
	Gate    verify.Verdict // least verdict of an output; "": outputs are not judged
	Attest  bool           // write a statement of provenance beside each output

	Jobs   int   // models at a time; default: the number of CPUs
	Memory int64 // of all models in work together, in bytes; default: three quarters of what is free

	// Convert converts a model. Its error is recorded, and the other jobs go on.
	Convert func(ctx context.Context, c Call) (*Result, error)

	// DataFiles returns the files and folders that options of a conversion name, such as calibration data. May be nil.
	DataFiles func(options []string) []string

	// Told, if set, is called for each job that is finished, one at a time. kept: it was done before.
	Told func(r *Record, kept bool)

	// Waits, if set, is called if another run of the same share has to end first.
	Waits func()
}

// Call is one conversion.
type Call struct {
	In, Out string         // paths; In may be the name of a remote model, of this version
	Options []string       // flags of the conversion
	Gate    verify.Verdict // see Options
	Attest  string         // path of the statement of provenance to be written; "": none
	Threads int            // that the conversion should use
}

// Result is what a conversion did.
type Result struct {
	Outputs  []string // files that were written, the model first
	Judged   *verify.Judged
	Figures  *Figures
	Warnings []string
}

// Summary counts the jobs of a run.
type Summary struct {
	Jobs    int `json:"jobs"`    // of the share
	Done    int `json:"done"`    // outputs that are in the folder
	Kept    int `json:"kept"`    // jobs that were done before, and are not counted in Seconds
	Refused int `json:"refused"` // outputs that the gate kept out
	Failed  int `json:"failed"`  // jobs that failed

	Unquantized int `json:"unquantized"` // outputs in the folder of which nothing is quantized, though options ask for it

	Missing  []Missing `json:"missing"`  // outputs that are refused or failed
	Manifest string    `json:"manifest"` // path
	Seconds  float64   `json:"seconds"`
}

// Notes say what is to know about outputs that are there.
func (s *Summary) Notes() []string {
	if s.Unquantized == 0 {
		return nil
	}
	return []string{fmt.Sprintf("%d of %s %s nothing quantized: --min-coverage refuses such models, --ops all may quantize them",
		s.Unquantized, english.Plural(s.Done, "output", ""), english.PluralWord(s.Unquantized, "has", "have"))}
}

// Missing is an output that is not there.
type Missing struct {
	Out    string `json:"out"`
	In     string `json:"in"`
	Status Status `json:"status"`
	Error  string `json:"error"`
}

// Plan checks the jobs and returns those of the share, in their order.
func Plan(jobs []Job, folder string, s spec.Share) ([]Job, error) {
	if err := check(jobs, folder); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(slices.Clone(jobs), func(j Job) bool { return !hasJob(s, j.Out) }), nil
}

// Waiting lists jobs that a run would do.
type Waiting struct {
	Pending []WaitingJob `json:"pending"`
}

// WaitingJob is a job that a run would do.
type WaitingJob struct {
	Out     string   `json:"out"`             // name of the output in the folder, with /
	In      string   `json:"in"`              // the model
	Options []string `json:"options"`         // flags of the conversion
	Error   string   `json:"error,omitempty"` // why the job would fail
}

// Planned describes the jobs that Pending returns.
func Planned(pending []Job) Waiting {
	w := Waiting{Pending: []WaitingJob{}}
	for _, j := range pending {
		job := WaitingJob{Out: j.Out, In: remote.Plain(j.In), Options: append([]string{}, j.Options...)}
		if j.Wrong != nil {
			job.Error = j.Wrong.Error()
		}
		w.Pending = append(w.Pending, job)
	}
	return w
}

// Pending returns the jobs of the share that Run would do.
func Pending(ctx context.Context, jobs []Job, o Options) ([]Job, error) {
	r, err := newRun(ctx, jobs, &o)
	if err != nil {
		return nil, err
	}
	defer r.out.close()
	var pending []Job
	for _, j := range r.jobs {
		done, err := r.isDone(ctx, &j)
		if err != nil {
			return nil, err
		}
		if !done {
			if j.Wrong == nil {
				j.Wrong = r.lacking(&j)
			}
			pending = append(pending, j)
		}
	}
	return pending, nil
}

// lacking names a local file of a job that is not there: the model, or data.
func (r *run) lacking(j *Job) error {
	files, err := r.dataFiles(j)
	if err == nil && !remote.Is(j.In) {
		files = append([]string{j.In}, files...)
	}
	for _, path := range files {
		if err == nil && !remote.Is(path) {
			if _, err = os.Stat(path); err != nil {
				err = fmt.Errorf("%s: %w", path, msg.Cause(err))
			}
		}
	}
	return j.located(err)
}

// Run does the jobs. Its error is about the run as a whole; jobs that fail are in the Summary.
func Run(ctx context.Context, jobs []Job, o Options) (*Summary, error) {
	if err := work.CheckContext(ctx); err != nil {
		return nil, err
	}
	start := time.Now()
	if err := remote.CheckFolder(o.Folder); err != nil {
		return nil, err
	}
	if err := check(jobs, o.Folder); err != nil {
		return nil, err
	}
	if !remote.IsObject(o.Folder) { // there are no locks of objects
		if err := os.MkdirAll(o.Folder, 0o777); err != nil {
			return nil, fmt.Errorf("%s: %w", o.Folder, msg.Cause(err))
		}
		unlock, err := lock(ctx, filepath.Join(o.Folder, manifestOf(o.Shard)), o.Waits)
		if err != nil {
			return nil, err
		}
		defer unlock()
	}
	r, err := newRun(ctx, jobs, &o)
	if err != nil {
		return nil, err
	}
	defer r.out.close()
	if r.manifest, err = openManifest(r.out.path(manifestOf(o.Shard))); err != nil {
		return nil, err
	}
	defer r.manifest.f.Close()
	r.summary.Manifest = r.out.name(manifestOf(o.Shard))
	if err := r.all(ctx); err != nil {
		return nil, err
	}
	r.summary.Seconds = time.Since(start).Seconds()
	slices.SortFunc(r.summary.Missing, func(a, b Missing) int { return strings.Compare(a.Out, b.Out) })
	return &r.summary, nil
}

// lockWait is how long a run waits for another one of the same share: one that was killed is gone at once. Tests change it.
var lockWait = 10 * time.Second

func lock(ctx context.Context, path string, waits func()) (unlock func(), err error) {
	busy := fmt.Errorf("%s: another run of this batch, or of this shard of it, is at work", path)
	within, stop := context.WithTimeoutCause(ctx, lockWait, busy)
	defer stop()
	unlock, err = commit.Lock(within, path, waits)
	if err != nil && ctx.Err() == nil && within.Err() != nil {
		return nil, busy
	}
	return unlock, err
}

// run is a run of a share.
type run struct {
	*Options
	jobs     []Job
	before   map[string]*Record
	manifest *manifest
	hashes   hashes
	client   *remote.Client
	out      *outputs
	memory   *semaphore.Weighted
	budget   int64 // of memory
	threads  int   // of each conversion

	mu      sync.Mutex // of the manifest, the summary and Told
	summary Summary
}

func newRun(ctx context.Context, jobs []Job, o *Options) (*run, error) {
	jobs, err := Plan(jobs, o.Folder, o.Shard)
	if err != nil {
		return nil, err
	}
	r := &run{Options: o, jobs: jobs, client: remote.New(), summary: Summary{Jobs: len(jobs), Missing: []Missing{}}}
	cpus := runtime.GOMAXPROCS(0)
	if r.Jobs < 1 {
		r.Jobs = cpus
	}
	r.Jobs = max(min(r.Jobs, len(jobs)), 1)
	r.threads = max(cpus/r.Jobs, 1)
	if r.budget = r.Memory; r.budget < 1 {
		r.budget = max(work.Free()/4*3, leastMemory)
	}
	r.memory = semaphore.NewWeighted(r.budget)
	if r.out, err = openOutputs(o.Folder, r.client); err != nil {
		return nil, err
	}
	if r.before, err = r.out.records(ctx); err != nil {
		r.out.close()
		return nil, err
	}
	return r, nil
}

// all does the jobs in their order, several at a time.
func (r *run) all(ctx context.Context) error {
	g, inner := errgroup.WithContext(ctx)
	g.SetLimit(r.Jobs)
	for i := range r.jobs {
		if inner.Err() != nil {
			break
		}
		g.Go(func() error { return r.one(inner, &r.jobs[i]) })
	}
	if err := g.Wait(); err != nil && ctx.Err() == nil {
		return err
	}
	return context.Cause(ctx)
}

// one does a job, unless it is done. Its error ends the run.
func (r *run) one(ctx context.Context, j *Job) error {
	done, err := r.isDone(ctx, j)
	if err != nil {
		return err
	}
	if done {
		r.tell(r.before[j.Out], true)
		return nil
	}
	record := &Record{
		SchemaVersion: schemaVersion, Out: j.Out, In: remote.Plain(j.In), Options: append([]string{}, j.Options...), Gate: gateText(r.Gate), Version: r.Version,
		Inputs: []attest.File{}, Outputs: []attest.File{}, Started: time.Now().UTC(),
	}
	err = r.convert(ctx, j, record)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	record.Seconds = time.Since(record.Started).Seconds()
	switch {
	case err == nil:
		record.Status = Done
	case errors.Is(err, verify.ErrGate):
		record.Status, record.Error = Refused, err.Error()
		r.removeOld(ctx, j)
	default:
		record.Status, record.Error = Failed, j.located(err).Error()
	}
	return r.record(ctx, record)
}

// convert converts the model of a job, and fills the record.
func (r *run) convert(ctx context.Context, j *Job, record *Record) (err error) {
	if j.Wrong != nil {
		return j.Wrong
	}
	out := r.out.path(j.Out)
	if err := r.out.makeFolder(j.Out); err != nil {
		return err
	}
	if record.Inputs, err = r.inputs(ctx, j); err != nil {
		return err
	}
	need := min(r.need(j, record.Inputs), r.budget)
	if err := r.memory.Acquire(ctx, need); err != nil {
		return err
	}
	defer r.memory.Release(need)
	in := record.Inputs[0].Path
	if remote.Plain(j.In) != j.In {
		in = j.In // with the query, which is not recorded
	}
	target, options, err := r.out.target(ctx, j.Out, j.Options)
	if err != nil {
		return err
	}
	c := Call{In: in, Out: out, Options: options, Gate: r.Gate, Threads: r.threads}
	if r.Attest {
		c.Attest = out + attest.Suffix
	}
	made, err := r.Convert(ctx, c)
	if made != nil {
		record.Judged, record.Figures, record.Warnings = made.Judged, made.Figures, made.Warnings
	}
	if err == nil && (made == nil || len(made.Outputs) == 0) {
		err = errors.New("the conversion names no output")
	}
	if err != nil {
		return err
	}
	for _, f := range record.Inputs {
		if !remote.Is(f.Path) && !isUnchanged(f.Path, &f) {
			return fmt.Errorf("%s: the file changed while the model was converted", f.Path)
		}
	}
	outputs := made.Outputs
	if r.Attest {
		outputs = append(slices.Clone(outputs), c.Attest)
		if err := commit.RemoveTemporary(c.Attest); err != nil { // of a run that was killed
			return err
		}
	}
	if record.Outputs, err = attest.HashAll(ctx, outputs); err != nil {
		return err
	}
	for i := range record.Outputs {
		name, err := filepath.Rel(r.out.folder, record.Outputs[i].Path)
		if err != nil {
			return err
		}
		record.Outputs[i].Path = filepath.ToSlash(name)
	}
	if err := r.out.publish(ctx, target, record.Outputs); err != nil {
		return err
	}
	if target != nil {
		record.Warnings = append(record.Warnings, target.Notes...)
	}
	return nil
}

// inputs reads the model, its external data, and the files that options name.
func (r *run) inputs(ctx context.Context, j *Job) ([]attest.File, error) {
	data, err := r.dataFiles(j)
	if err != nil {
		return nil, err
	}
	var paths []string
	files := []attest.File{}
	if remote.Is(j.In) {
		files, err = r.fetch(ctx, j)
	} else {
		paths = attest.ModelFiles(j.In)
	}
	if err != nil {
		return []attest.File{}, err
	}
	for _, path := range append(paths, data...) {
		f, err := r.hashes.of(ctx, path)
		if err != nil {
			return files, err
		}
		files = append(files, f)
	}
	return files, nil
}

// fetch puts a remote model where its conversion looks for it.
func (r *run) fetch(ctx context.Context, j *Job) (files []attest.File, err error) {
	made, err := r.client.Fetch(ctx, j.In, remote.FolderFor(r.out.path(j.Out)), false)
	if err != nil {
		return nil, err
	}
	for i, path := range made.Paths {
		f, err := attest.Hash(ctx, path)
		if err != nil {
			return nil, err
		}
		f.Path, f.ETag = made.Files[i].Name, made.Files[i].ETag
		files = append(files, f)
	}
	return files, nil
}

func (r *run) dataFiles(j *Job) ([]string, error) {
	if r.DataFiles == nil {
		return nil, nil
	}
	return attest.DataFiles(r.DataFiles(j.Options))
}

// What a conversion takes besides its model, in bytes.
const (
	leastMemory = 160 << 20 // the program and the default of --memory
	calibrating = 1 << 30   // runs of the model, and layers in work
)

// need estimates the memory of a conversion. It is bounded for the conversion itself; what runs the model has it in memory, the
// float model and the decoded one.
func (r *run) need(j *Job, inputs []attest.File) int64 {
	n, model := int64(leastMemory), int64(0)
	for _, f := range inputs {
		model += f.Bytes
	}
	calib := slices.ContainsFunc(j.Options, func(word string) bool { return strings.HasPrefix(word, "--calib") })
	if calib {
		n += calibrating
	}
	if calib || r.Gate != "" {
		n += 3 * model
	}
	return n
}

// removeOld removes the output of an earlier run: the gate refuses the new one.
func (r *run) removeOld(ctx context.Context, j *Job) {
	old := r.before[j.Out]
	if old == nil {
		return
	}
	for _, f := range old.Outputs {
		r.out.remove(ctx, &f)
	}
}

// record adds a record to the manifest, and tells.
func (r *run) record(ctx context.Context, record *Record) error {
	r.mu.Lock()
	err := r.manifest.add(record)
	end := r.manifest.end
	r.mu.Unlock()
	if err == nil {
		err = r.out.mirror(ctx, manifestOf(r.Shard), end)
	}
	if err == nil {
		r.tell(record, false)
	}
	return err
}

func (r *run) tell(record *Record, kept bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := &r.summary
	switch record.Status {
	case Done:
		s.Done++
		if record.unquantized() {
			s.Unquantized++
		}
	case Refused:
		s.Refused++
	case Failed:
		s.Failed++
	}
	if kept {
		s.Kept++
	}
	if record.Status != Done {
		s.Missing = append(s.Missing, Missing{record.Out, record.In, record.Status, record.Error})
	}
	if r.Told != nil {
		r.Told(record, kept)
	}
}
