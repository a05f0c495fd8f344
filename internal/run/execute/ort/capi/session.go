// Package capi runs models with the shared library of ONNX Runtime.
//
// [Open] loads the library. [Library.NewSession] gets a model and returns a [Session], which the caller
// closes. The package calls the library's C interface without cgo, so a plain go build is enough. But a
// program that imports it is not static: it needs the system's dynamic linker.
package capi

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"
	"unsafe"

	"google.golang.org/protobuf/proto"

	"onnxquant/formats/dtype"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/run/execute"
	"onnxquant/internal/run/execute/ort/wire"
)

// Library is ONNX Runtime.
type Library struct {
	Version string

	f              functions
	env, allocator handle
}

// Open loads the shared library at path. It stays loaded.
func Open(path string) (*Library, error) {
	l := &Library{}
	var err error
	if l.Version, err = l.f.load(path); err != nil {
		return nil, err
	}
	const logErrors = 3
	if err := l.f.check(l.f.CreateEnv(logErrors, "onnxquant", &l.env)); err != nil {
		return nil, err
	}
	return l, l.f.check(l.f.GetAllocatorWithDefaultOptions(&l.allocator))
}

// Session is a model that was loaded.
type Session struct {
	l       *Library
	session handle
	outputs []string

	bound *bound        // what Time runs on; nil before Bind
	last  time.Duration // of a run of Time
}

// NewSession loads a model. The nodes, initializers, inputs and outputs of r.More are appended to the
// model's.
func (l *Library) NewSession(r *wire.Load) (*Session, error) {
	var added onnxpb.ModelProto
	if err := proto.Unmarshal(r.More, &added); err != nil {
		return nil, err
	}
	s := &Session{l: l}
	options, err := l.options(r)
	if err != nil {
		return nil, err
	}
	defer l.f.ReleaseSessionOptions(options)
	if len(r.More) == 0 {
		err = s.load(r.Model, options)
	} else {
		err = s.loadWith(r.Model, r.More, options)
	}
	if err != nil {
		return nil, err
	}
	if s.outputs, err = s.outputNames(); err != nil {
		s.Close()
		return nil, err
	}
	s.outputs = s.outputs[:len(s.outputs)-len(added.Graph.GetOutput())]
	return s, nil
}

// options returns the options of a session. The caller releases them.
func (l *Library) options(r *wire.Load) (handle, error) {
	var options handle
	if err := l.f.check(l.f.CreateSessionOptions(&options)); err != nil {
		return 0, err
	}
	entries := map[string]string{
		"session.qdq_matmulnbits_accuracy_level":               "1",                   // compute with fused weights in float, not in int8
		"session.model_external_initializers_file_folder_path": filepath.Dir(r.Model), // for models that are not loaded from a file
		"session.intra_op.allow_spinning":                      "0",                   // idle threads yield the processor
	}
	if r.AsUsers {
		delete(entries, "session.qdq_matmulnbits_accuracy_level")
		delete(entries, "session.intra_op.allow_spinning")
	}
	if len(r.More) == 0 {
		delete(entries, "session.model_external_initializers_file_folder_path")
	}
	for key, value := range entries {
		if err := l.f.check(l.f.AddSessionConfigEntry(options, key, value)); err != nil {
			l.f.ReleaseSessionOptions(options)
			return 0, err
		}
	}
	var err error
	if r.Plain {
		const disableAll = 0
		err = l.f.check(l.f.SetSessionGraphOptimizationLevel(options, disableAll))
	}
	if err == nil && r.Threads > 0 {
		err = l.f.check(l.f.SetIntraOpNumThreads(options, int32(r.Threads)))
	}
	if err == nil && r.Profile != "" {
		var prefix *pathChar
		if prefix, err = pathString(r.Profile); err == nil {
			err = l.f.check(l.f.EnableProfiling(options, prefix))
		}
	}
	if err != nil {
		l.f.ReleaseSessionOptions(options)
		return 0, err
	}
	return options, nil
}

func (s *Session) load(path string, options handle) error {
	chars, err := pathString(path)
	if err != nil {
		return err
	}
	return s.l.f.check(s.l.f.CreateSession(s.l.env, chars, options, &s.session))
}

// loadWith loads a model merged with another: protobuf merges messages whose bytes are concatenated.
// ONNX Runtime infers the types of outputs without one.
func (s *Session) loadWith(path string, more []byte, options handle) error {
	model, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	model = append(model, more...)
	return s.l.f.check(s.l.f.CreateSessionFromArray(s.l.env, model, uintptr(len(model)), options, &s.session))
}

func (s *Session) outputNames() ([]string, error) {
	f := &s.l.f
	var n uintptr
	if err := f.check(f.SessionGetOutputCount(s.session, &n)); err != nil {
		return nil, err
	}
	names := make([]string, n)
	for i := range names {
		var name *byte
		if err := f.check(f.SessionGetOutputName(s.session, uintptr(i), s.l.allocator, &name)); err != nil {
			return nil, err
		}
		names[i] = goString(name)
		if err := f.check(f.AllocatorFree(s.l.allocator, name)); err != nil {
			return nil, err
		}
	}
	return names, nil
}

// Close frees the memory of the model.
func (s *Session) Close() {
	s.unbind()
	s.l.f.ReleaseSession(s.session)
}

// Run runs the model and calls use with the outputs of the given names, or with all outputs
// of the model. Their data is valid during the call.
func (s *Session) Run(inputs []*execute.Tensor, outputs []string, use func([]*execute.Tensor) error) error {
	if len(outputs) == 0 {
		outputs = s.outputs
	}
	b, err := s.bind(inputs, outputs)
	defer s.release(b)
	if err == nil {
		err = s.run(b)
	}
	if err != nil {
		return err
	}
	results, total := make([]*execute.Tensor, len(outputs)), int64(0)
	for i, name := range outputs {
		t, err := s.l.tensor(b.outputs[i])
		if err == nil {
			if total += int64(len(t.Data)); total > wire.MaxBytes {
				err = wire.ErrSize
			}
		}
		if err != nil {
			return fmt.Errorf("output %q: %w", name, err)
		}
		t.Name = name
		results[i] = t
	}
	return use(results)
}

// bound has the values of runs, and their names.
type bound struct {
	inputNames, outputNames []*byte
	inputs, outputs         []handle
}

// bind makes the values of runs. The caller releases them, also after an error.
func (s *Session) bind(inputs []*execute.Tensor, outputs []string) (*bound, error) {
	b := &bound{outputs: make([]handle, len(outputs))}
	var names []string
	for _, t := range inputs {
		v, err := s.l.value(t)
		b.inputs = append(b.inputs, v)
		if err != nil {
			return b, fmt.Errorf("input %q: %w", t.Name, err)
		}
		names = append(names, t.Name)
	}
	var err error
	if b.inputNames, err = cStrings(names); err == nil {
		b.outputNames, err = cStrings(outputs)
	}
	return b, err
}

// run runs the model. The outputs are in b afterwards.
func (s *Session) run(b *bound) error {
	f := &s.l.f
	err := f.check(f.Run(s.session, 0, b.inputNames, b.inputs, uintptr(len(b.inputs)), b.outputNames, uintptr(len(b.outputs)), b.outputs))
	runtime.KeepAlive(b)
	return err
}

func (s *Session) release(b *bound) {
	s.releaseAll(b.inputs)
	s.releaseAll(b.outputs)
}

// releaseAll releases values, and forgets them.
func (s *Session) releaseAll(values []handle) {
	for i, v := range values {
		if v != 0 {
			s.l.f.ReleaseValue(v)
			values[i] = 0
		}
	}
}

// value makes a value of ONNX Runtime with a copy of a tensor. The types have the same
// numbers up to largestType.
func (l *Library) value(t *execute.Tensor) (handle, error) {
	if t.DType > largestType {
		return 0, fmt.Errorf("ONNX Runtime has no type %v", t.DType)
	}
	var v handle
	if err := l.f.check(l.f.CreateTensorAsOrtValue(l.allocator, t.Dims, uintptr(len(t.Dims)), int32(t.DType), &v)); err != nil {
		return 0, err
	}
	data, err := l.data(v, int64(len(t.Data)))
	copy(data, t.Data)
	return v, err
}

const largestType = dtype.Float8E5M2FNUZ

// tensor describes a value. It shares the data of the value.
func (l *Library) tensor(v handle) (*execute.Tensor, error) {
	f := &l.f
	var kind int32
	if v == 0 {
		return nil, errors.New("it is an optional value without contents, which cannot be compared")
	}
	if err := f.check(f.GetValueType(v, &kind)); err != nil {
		return nil, err
	}
	if kinds := []string{"a value of an unknown kind", "", "a sequence", "a map", "opaque", "a sparse tensor", "optional"}; kind != 1 {
		if kind < 0 || int(kind) >= len(kinds) {
			kind = 0
		}
		return nil, fmt.Errorf("it is %s; only tensors can be compared", kinds[kind])
	}
	var info handle
	if err := f.check(f.GetTensorTypeAndShape(v, &info)); err != nil {
		return nil, err
	}
	defer f.ReleaseTensorTypeAndShapeInfo(info)
	var typ int32
	var rank uintptr
	if err := f.check(f.GetTensorElementType(info, &typ)); err != nil {
		return nil, err
	}
	if err := f.check(f.GetDimensionsCount(info, &rank)); err != nil {
		return nil, err
	}
	t := &execute.Tensor{DType: dtype.DType(typ), Dims: make([]int64, rank)}
	switch {
	case t.DType == dtype.String:
		return nil, errors.New("it has strings, which cannot be compared")
	case t.DType > largestType:
		return nil, fmt.Errorf("its elements have a type that is not supported, ONNX Runtime's number %d", typ)
	}
	if err := f.check(f.GetDimensions(info, t.Dims, rank)); err != nil {
		return nil, err
	}
	n, err := wire.Bytes(t.DType, t.Dims)
	if err != nil {
		return nil, err
	}
	t.Data, err = l.data(v, n)
	return t, err
}

// data returns the n bytes of a tensor's elements.
func (l *Library) data(v handle, n int64) ([]byte, error) {
	var p *byte
	err := l.f.check(l.f.GetTensorMutableData(v, &p))
	if err != nil || n == 0 {
		return nil, err
	}
	return unsafe.Slice(p, n), nil
}

func cString(s string) (*byte, error) {
	if strings.IndexByte(s, 0) >= 0 {
		return nil, fmt.Errorf("%q has a NUL", s)
	}
	return &append([]byte(s), 0)[0], nil
}

func cStrings(all []string) ([]*byte, error) {
	list := make([]*byte, len(all))
	for i, s := range all {
		var err error
		if list[i], err = cString(s); err != nil {
			return nil, err
		}
	}
	return list, nil
}

func goString(p *byte) string {
	n := 0
	for *(*byte)(unsafe.Add(unsafe.Pointer(p), n)) != 0 {
		n++
	}
	return string(unsafe.Slice(p, n))
}
