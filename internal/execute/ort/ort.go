// Package ort runs models in ONNX Runtime.
//
// The binding to its shared library needs cgo, which the command avoids. So a helper
// program, onnxquant-ort, does the work, in one process per run: it reads a [Request]
// from standard input and writes a [Response] to standard output, both in
// encoding/gob. If ONNX Runtime crashes, only the helper dies.
package ort

import (
	"bytes"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	"onnxquant/formats/dtype"
	"onnxquant/internal/execute"
	"onnxquant/internal/modelfile"
)

// Request describes one run.
type Request struct {
	Library string // the shared library of ONNX Runtime
	Model   string // the model file
	Inputs  []*execute.Tensor
	Outputs []Output
}

// Output is the declaration of an output in the model.
type Output struct {
	Name  string
	DType dtype.DType
	Dims  []int64
	Known bool // all of Dims are known
}

// Response is the result of a run.
type Response struct {
	Version string // of ONNX Runtime
	Error   string // empty after success
	Outputs []*execute.Tensor
}

// Runner is the execute.Runner of this package.
type Runner struct {
	helper, library string
	version         string // known after the first run
}

// Find looks for the helper and the shared library. library is the path of the latter;
// "" searches the usual places.
func Find(library string) (*Runner, error) {
	helper, err := findHelper()
	if err != nil {
		return nil, err
	}
	if library, err = findLibrary(library); err != nil {
		return nil, err
	}
	return &Runner{helper: helper, library: library}, nil
}

func (r *Runner) Name() string {
	if r.version == "" {
		return "ONNX Runtime"
	}
	return "ONNX Runtime " + r.version
}

// Run implements execute.Runner.
func (r *Runner) Run(ctx context.Context, path string, inputs []*execute.Tensor) ([]*execute.Tensor, error) {
	outputs, err := declared(path, inputs)
	if err != nil {
		return nil, err
	}
	if path, err = filepath.Abs(path); err != nil {
		return nil, err
	}
	var question, stderr bytes.Buffer
	if err := gob.NewEncoder(&question).Encode(Request{r.library, path, inputs, outputs}); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, r.helper)
	cmd.Stdin, cmd.Stderr = &question, &stderr
	answer, err := cmd.Output()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	var response Response
	if err == nil {
		err = gob.NewDecoder(bytes.NewReader(answer)).Decode(&response)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w%s", r.helper, err, lastLine(stderr.String()))
	}
	r.version = response.Version
	if response.Error != "" {
		return nil, errors.New(strings.Join(strings.Fields(response.Error), " ")) // one line
	}
	for _, t := range response.Outputs {
		if n, err := dtype.Elements(t.Dims); err != nil || t.DType.Bits() < 8 || int64(len(t.Data)) != t.DType.Bytes(n) {
			return nil, fmt.Errorf("%s: output %q has %d bytes for %v %v", r.helper, t.Name, len(t.Data), t.DType, t.Dims)
		}
	}
	return response.Outputs, nil
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if last := lines[len(lines)-1]; last != "" {
		return ": " + last
	}
	return ""
}

// declared lists the outputs of a model. The inputs give symbolic dimensions their
// sizes.
func declared(path string, inputs []*execute.Tensor) ([]Output, error) {
	m, err := modelfile.Open(path)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	sizes := map[string]int64{}
	for _, info := range m.Proto.GetGraph().GetInput() {
		for _, t := range inputs {
			dims := info.GetType().GetTensorType().GetShape().GetDim()
			if t.Name != info.GetName() || len(dims) != len(t.Dims) {
				continue
			}
			for i, d := range dims {
				sizes[d.GetDimParam()] = t.Dims[i]
			}
		}
	}
	delete(sizes, "")
	var outputs []Output
	for _, info := range m.Proto.GetGraph().GetOutput() {
		typ := info.GetType().GetTensorType()
		if typ == nil {
			return nil, fmt.Errorf("output %q is not a tensor", info.GetName())
		}
		o := Output{Name: info.GetName(), DType: dtype.DType(typ.GetElemType()), Known: typ.GetShape() != nil}
		for _, d := range typ.GetShape().GetDim() {
			n, known := sizes[d.GetDimParam()]
			if fixed, ok := execute.FixedSize(d); ok {
				n, known = fixed, true
			}
			o.Dims = append(o.Dims, n)
			o.Known = o.Known && known
		}
		outputs = append(outputs, o)
	}
	return outputs, nil
}

var errNoHelper = errors.New("cannot use ONNX Runtime: " + helperName + " is neither beside this program nor on the PATH; make ort builds it")
