package capi

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"

	"github.com/ebitengine/purego"
)

type (
	handle uintptr // an object of the library, such as a session
	status uintptr // an error, or 0
)

// functions are the functions of OrtApi that we use, by their index in that struct. The indices never
// change: new functions are appended.
type functions struct {
	GetErrorMessage func(status) string                                    `place:"2"`
	ReleaseStatus   func(status)                                           `place:"93"`
	CreateEnv       func(logLevel int32, logID string, env *handle) status `place:"3"`

	CreateSessionOptions             func(options *handle) status                                                         `place:"10"`
	AddSessionConfigEntry            func(options handle, key, value string) status                                       `place:"130"`
	SetSessionGraphOptimizationLevel func(options handle, level int32) status                                             `place:"23"`
	SetIntraOpNumThreads             func(options handle, n int32) status                                                 `place:"24"`
	EnableProfiling                  func(options handle, prefix *pathChar) status                                        `place:"14"`
	ReleaseSessionOptions            func(options handle)                                                                 `place:"100"`
	CreateSession                    func(env handle, path *pathChar, options handle, session *handle) status             `place:"7"`
	CreateSessionFromArray           func(env handle, model []byte, size uintptr, options handle, session *handle) status `place:"8"`
	ReleaseSession                   func(session handle)                                                                 `place:"95"`
	SessionEndProfiling              func(session, allocator handle, path **byte) status                                  `place:"110"`
	SessionGetOutputCount            func(session handle, n *uintptr) status                                              `place:"31"`
	SessionGetOutputName             func(session handle, i uintptr, allocator handle, name **byte) status                `place:"37"`
	GetAllocatorWithDefaultOptions   func(allocator *handle) status                                                       `place:"78"`
	AllocatorFree                    func(allocator handle, p *byte) status                                               `place:"76"`

	Run func(session, options handle, inputNames []*byte, inputs []handle, nInputs uintptr, outputNames []*byte, nOutputs uintptr, outputs []handle) status `place:"9"`

	CreateTensorAsOrtValue        func(allocator handle, dims []int64, rank uintptr, elementType int32, value *handle) status `place:"48"`
	GetTensorMutableData          func(value handle, data **byte) status                                                      `place:"51"`
	GetValueType                  func(value handle, kind *int32) status                                                      `place:"67"`
	GetTensorTypeAndShape         func(value handle, info *handle) status                                                     `place:"65"`
	GetTensorElementType          func(info handle, elementType *int32) status                                                `place:"60"`
	GetDimensionsCount            func(info handle, rank *uintptr) status                                                     `place:"61"`
	GetDimensions                 func(info handle, dims []int64, rank uintptr) status                                        `place:"62"`
	ReleaseTensorTypeAndShapeInfo func(info handle)                                                                           `place:"99"`
	ReleaseValue                  func(value handle)                                                                          `place:"96"`
}

// apiVersion is the version of OrtApi that we ask for. All functions above are older.
const apiVersion = 16 // ONNX Runtime 1.16

// load loads the library at path, and returns its version.
func (f *functions) load(path string) (version string, err error) {
	address, err := symbol(path, "OrtGetApiBase")
	if err != nil {
		return "", fmt.Errorf("cannot load %s: %w", path, err)
	}
	type base struct{ getAPI, getVersion uintptr }
	var getBase func() *base
	var getVersion func() string
	var getAPI func(version uint32) *[places]uintptr
	purego.RegisterFunc(&getBase, address)
	b := getBase()
	purego.RegisterFunc(&getVersion, b.getVersion)
	purego.RegisterFunc(&getAPI, b.getAPI)
	version = getVersion()
	table := getAPI(apiVersion)
	if table == nil {
		return "", fmt.Errorf("%s is ONNX Runtime %s; this program needs 1.%d or later", path, version, apiVersion)
	}
	v := reflect.ValueOf(f).Elem()
	for i := range v.NumField() {
		place, err := strconv.Atoi(v.Type().Field(i).Tag.Get("place"))
		if err != nil {
			return "", err
		}
		purego.RegisterFunc(v.Field(i).Addr().Interface(), table[place])
	}
	return version, nil
}

// places is a number of functions that OrtApi has at least.
const places = 131

// check turns a status into an error, and releases it.
func (f *functions) check(s status) error {
	if s == 0 {
		return nil
	}
	defer f.ReleaseStatus(s)
	return errors.New(f.GetErrorMessage(s))
}
