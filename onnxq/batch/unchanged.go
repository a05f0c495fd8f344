package batch

import (
	"context"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"onnxquant/internal/remote"
	"onnxquant/onnxq/attest"
)

// isDone reports whether the record of a job says that it is done or refused, and nothing changed since: neither what goes in, nor
// what came out.
func (r *run) isDone(ctx context.Context, j *Job) (bool, error) {
	old := r.before[j.Out]
	if j.Wrong != nil || old == nil || old.In != remote.Plain(j.In) || old.Version != r.Version || !slices.Equal(old.Options, j.Options) {
		return false, nil
	}
	if !r.gateHolds(old) {
		return false, nil
	}
	for _, f := range old.Outputs {
		if same, err := r.out.has(ctx, &f); !same || err != nil {
			return false, err
		}
	}
	return r.sameInputs(ctx, j, old)
}

// gateHolds reports whether the gate would decide as it did, and everything was written that is wanted.
func (r *run) gateHolds(old *Record) bool {
	if old.Status == Refused {
		return r.Gate != "" && old.Judged != nil && !old.Judged.Verdict.AtLeast(r.Gate)
	}
	judged := r.Gate == "" || old.Judged != nil && old.Judged.Verdict.AtLeast(r.Gate)
	attested := slices.ContainsFunc(old.Outputs, func(f attest.File) bool { return f.Path == old.Out+attest.Suffix })
	return judged && len(old.Outputs) > 0 && (attested || !r.Attest)
}

// sameInputs reports whether the inputs have the content that they had.
func (r *run) sameInputs(ctx context.Context, j *Job, old *Record) (bool, error) {
	data, err := r.dataFiles(j)
	if err != nil || len(old.Inputs) <= len(data) {
		return false, nil // the job itself then fails, by name
	}
	model := old.Inputs[:len(old.Inputs)-len(data)]
	for i, path := range data {
		if old.Inputs[len(model)+i].Path != path {
			return false, nil
		}
	}
	if remote.Is(j.In) {
		if same, err := r.sameRemote(ctx, j, model); !same || err != nil {
			return false, err
		}
		model = nil
	}
	for _, f := range old.Inputs[len(old.Inputs)-len(data)-len(model):] {
		if isUnchanged(f.Path, &f) && f.Modified.Before(old.Started.Add(-clockStep)) {
			continue
		}
		now, err := r.hashes.of(ctx, f.Path)
		switch {
		case ctx.Err() != nil:
			return false, context.Cause(ctx)
		case err != nil || now.SHA256 != f.SHA256:
			return false, nil
		}
	}
	return true, nil
}

// sameRemote asks whether a model, and its external data, are those that were read. If the server does not answer, they are
// taken as changed: the job then fails, by name.
func (r *run) sameRemote(ctx context.Context, j *Job, files []attest.File) (bool, error) {
	info, err := r.client.Stat(ctx, j.In)
	for _, f := range files {
		same := false
		if err == nil {
			same, err = r.client.Unchanged(ctx, info, f.Path, f.ETag, f.Bytes)
		}
		if ctx.Err() != nil {
			return false, context.Cause(ctx)
		}
		if !same || err != nil {
			return false, nil
		}
	}
	return true, nil
}

// clockStep is the least time between two changes of a file that its time of modification shows on any file system.
// A file that was written shortly before it was read may have changed after that without a trace, so it is read again.
const clockStep = 2 * time.Second

// isUnchanged reports whether a file has the size and the time of modification that it had.
func isUnchanged(path string, f *attest.File) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Size() == f.Bytes && info.ModTime().Equal(f.Modified)
}

// hashes remembers the hashes of files that many jobs read, such as calibration data.
type hashes struct {
	once  singleflight.Group
	mu    sync.Mutex
	known map[string]attest.File
}

// of reads a file, unless it did so before and the file is the same.
func (h *hashes) of(ctx context.Context, path string) (attest.File, error) {
	h.mu.Lock()
	f, ok := h.known[path]
	h.mu.Unlock()
	if ok && isUnchanged(path, &f) {
		return f, nil
	}
	v, err, _ := h.once.Do(path, func() (any, error) { return attest.Hash(ctx, path) })
	if err != nil {
		return attest.File{}, err
	}
	f = v.(attest.File)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.known == nil {
		h.known = map[string]attest.File{}
	}
	h.known[path] = f
	return f, nil
}
