//go:build ort

// Command onnxquant-ort runs one model in ONNX Runtime for onnxquant, which
// itself avoids cgo. It is run by onnxquant, not by users: it reads a Request of
// package internal/execute/ort from standard input and writes a Response to
// standard output. It needs a C compiler to build:
//
//	CGO_ENABLED=1 go build -tags ort ./cmd/onnxquant-ort
package main

import (
	"encoding/binary"
	"encoding/gob"
	"fmt"
	"os"
	"reflect"

	runtime "github.com/yalue/onnxruntime_go"

	"onnxquant/formats/dtype"
	"onnxquant/internal/execute"
	"onnxquant/internal/execute/ort"
)

func main() {
	var request ort.Request
	if err := gob.NewDecoder(os.Stdin).Decode(&request); err != nil {
		fmt.Fprintln(os.Stderr, "onnxquant-ort: cannot read a request; this program is run by onnxquant verify:", err)
		os.Exit(2)
	}
	// Keep what ONNX Runtime prints out of the response.
	stdout := os.Stdout
	os.Stdout = os.Stderr
	var response ort.Response
	if err := answer(&request, &response); err != nil {
		response.Error = err.Error()
	}
	if err := gob.NewEncoder(stdout).Encode(response); err != nil {
		fmt.Fprintln(os.Stderr, "onnxquant-ort:", err)
		os.Exit(1)
	}
}

func answer(request *ort.Request, response *ort.Response) error {
	runtime.SetSharedLibraryPath(request.Library)
	if err := runtime.InitializeEnvironment(runtime.WithLogLevelError()); err != nil {
		return err
	}
	response.Version = runtime.GetVersion()
	options, err := runtime.NewSessionOptions()
	if err != nil {
		return err
	}
	// Compute with fused weights in float, not in int8.
	if err := options.AddSessionConfigEntry("session.qdq_matmulnbits_accuracy_level", "1"); err != nil {
		return err
	}
	var names, results []string
	var values []runtime.Value
	for _, t := range request.Inputs {
		v, err := toValue(t)
		if err != nil {
			return fmt.Errorf("input %q: %w", t.Name, err)
		}
		names, values = append(names, t.Name), append(values, v)
	}
	outputs := make([]runtime.Value, len(request.Outputs))
	for i, o := range request.Outputs {
		results = append(results, o.Name)
		if outputs[i], err = allocate(o); err != nil {
			return fmt.Errorf("output %q: %w", o.Name, err)
		}
	}
	session, err := runtime.NewDynamicAdvancedSession(request.Model, names, results, options)
	if err != nil {
		return err
	}
	if err := session.Run(values, outputs); err != nil {
		return err
	}
	for i, v := range outputs {
		t, err := fromValue(request.Outputs[i], v)
		if err != nil {
			return fmt.Errorf("output %q: %w", request.Outputs[i].Name, err)
		}
		response.Outputs = append(response.Outputs, t)
	}
	return nil
}

// toValue converts an input. ONNX Runtime has the standard's numbers of types.
func toValue(t *execute.Tensor) (runtime.Value, error) {
	if len(t.Dims) > 0 {
		return runtime.NewCustomDataTensor(runtime.NewShape(t.Dims...), t.Data, runtime.TensorElementDataType(t.DType))
	}
	switch {
	case t.DType == dtype.Float32:
		return runtime.NewScalar(t.Float32s()[0])
	case t.DType == dtype.Float64:
		return runtime.NewScalar(t.Float64s()[0])
	case t.DType == dtype.Int64:
		return runtime.NewScalar(t.Int64s()[0])
	case t.DType == dtype.Int32:
		return runtime.NewScalar(int32(t.Int64s()[0]))
	case t.DType == dtype.Bool:
		return runtime.NewScalar(t.Int64s()[0] != 0)
	}
	return nil, fmt.Errorf("scalars of type %v are not supported", t.DType)
}

// allocate makes the value of a scalar output, which the binding cannot take over, and of a
// float16 or bfloat16 output, whose data it would truncate. For others it returns nil: ONNX
// Runtime allocates them.
func allocate(o ort.Output) (runtime.Value, error) {
	if o.Known && len(o.Dims) == 0 {
		t, err := execute.New(o.DType, nil)
		if err != nil {
			return nil, err
		}
		return toValue(t)
	}
	if o.DType != dtype.Float16 && o.DType != dtype.BFloat16 {
		return nil, nil
	}
	if !o.Known {
		return nil, fmt.Errorf("its type is %v, so the model must declare its dimensions", o.DType)
	}
	t, err := execute.New(o.DType, o.Dims)
	if err != nil {
		return nil, err
	}
	return toValue(t)
}

// fromValue converts an output. All tensors except strings have a method GetData; its
// result type depends on the elements.
func fromValue(o ort.Output, v runtime.Value) (*execute.Tensor, error) {
	data := reflect.ValueOf(v).MethodByName("GetData")
	if !data.IsValid() {
		return nil, fmt.Errorf("a %T is not supported", v)
	}
	raw, err := binary.Append(nil, binary.LittleEndian, data.Call(nil)[0].Interface())
	return &execute.Tensor{Name: o.Name, DType: o.DType, Dims: v.GetShape(), Data: raw}, err
}
