package samples

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"onnxquant/formats/dtype"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/run/execute"
	"onnxquant/internal/run/npy"
)

// arrays is a source of samples in arrays. The samples of one input may be spread over several arrays.
type arrays struct {
	model   *model
	columns [][]*array // by the order of inputs
	taken   []string   // arrays that are used for an input with another name, for warnings
	others  []*array   // named after no input or output; see Labels
	path    string     // of the first file
	n       int        // samples
}

// array is an array in a file.
type array struct {
	path   string
	member int    // of an .npz file
	name   string // of the array
	typ    dtype.DType
	dims   []int64
	rows   int64   // slices along the first axis that are a sample; 0: all
	shape  []int64 // of a sample
	count  int
}

// newArrays finds the samples of files with arrays. With whole, arrays that all fit their inputs as
// they are make one sample.
func newArrays(m *model, paths []string, whole bool) (*arrays, error) {
	a := &arrays{model: m, columns: make([][]*array, len(m.inputs)), path: paths[0]}
	for _, path := range paths {
		found, err := list(path)
		if err != nil {
			return nil, err
		}
		for _, x := range found {
			if i := m.inputOf(x); i >= 0 {
				a.columns[i] = append(a.columns[i], x)
			} else if !slices.Contains(m.outputs, x.name) {
				a.others = append(a.others, x)
			}
		}
	}
	if err := a.assign(a.others); err != nil {
		return nil, err
	}
	if whole && a.whole() {
		a.n = 1
		return a, nil
	}
	for i, column := range a.columns {
		for _, x := range column {
			if err := x.split(m.inputs[i]); err != nil {
				return nil, fmt.Errorf("%s: input %s: %w", x.location(), describe(m.inputs[i]), err)
			}
		}
	}
	return a, a.balance(paths)
}

// whole makes all arrays one sample, if each input has at most one array and the array fits the input.
func (a *arrays) whole() bool {
	for i, column := range a.columns {
		if len(column) > 1 || len(column) == 1 && !column[0].fits(a.model.inputs[i]) {
			return false
		}
	}
	for _, column := range a.columns {
		for _, x := range column {
			x.rows, x.shape, x.count = 0, x.dims, 1
		}
	}
	return true
}

// fits reports whether an array has the type and shape of an input.
func (x *array) fits(info *onnxpb.ValueInfoProto) bool {
	shape := info.GetType().GetTensorType().GetShape()
	return convertible(x.typ, typeOf(info)) && (shape == nil || slices.EqualFunc(x.dims, shape.GetDim(), fitsSize))
}

func fitsSize(size int64, d *onnxpb.TensorShapeProto_Dimension) bool {
	n, fixed := execute.FixedSize(d)
	return !fixed || n == size
}

// location is the file of an array, and its name in there, which a .pb file may lack.
func (x *array) location() string {
	if x.name == "" {
		return x.path
	}
	return x.path + ": " + x.name
}

// list lists the arrays of a file.
func list(path string) ([]*array, error) {
	if strings.EqualFold(filepath.Ext(path), ".pb") {
		t, err := execute.ReadTensorProto(path)
		if err != nil {
			return nil, err
		}
		return []*array{{path: path, name: t.Name, typ: t.DType, dims: t.Dims}}, nil
	}
	f, err := npy.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var all []*array
	for i := range f.Len() {
		a, err := f.Array(i)
		if err != nil {
			return nil, err
		}
		typ, err := execute.ArrayType(a)
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", path, a.Name, err)
		}
		all = append(all, &array{path: path, member: i, name: a.Name, typ: typ, dims: a.Shape})
	}
	return all, nil
}

var numberAtEnd = regexp.MustCompile(`[-_.]?\d+$`)

// inputOf returns the input that an array is named after, or -1.
func (m *model) inputOf(x *array) int {
	base := strings.TrimSuffix(filepath.Base(x.path), filepath.Ext(x.path))
	for _, name := range []string{x.name, base, numberAtEnd.ReplaceAllString(x.name, ""), numberAtEnd.ReplaceAllString(base, "")} {
		if i := m.index(name); i >= 0 {
			return i
		}
	}
	if number, ok := strings.CutPrefix(base, "input_"); ok && x.name == "" { // of ONNX test data
		if i, err := strconv.Atoi(number); err == nil && i >= 0 && i < len(m.inputs) {
			return i
		}
	}
	return -1
}

// assign assigns the arrays that are named after no input. They go to the inputs without an array, in
// order, if there are as many. Arrays of one name go to the only input without an array.
func (a *arrays) assign(rest []*array) error {
	known := make([]*execute.Tensor, len(a.columns))
	if ids := a.model.ids; ids >= 0 {
		known[ids] = &execute.Tensor{Dims: []int64{1, 1}}
	}
	var missing []int
	for i, column := range a.columns {
		if len(column) > 0 {
			continue
		}
		if t, err := a.model.implied(known, a.model.inputs[i], 0); t == nil && err == nil {
			missing = append(missing, i)
		}
	}
	switch {
	case len(missing) == 0:
		return nil
	case len(missing) > 1 && len(missing) == len(rest):
		for k, i := range missing {
			a.assignTo(i, rest[k:k+1])
		}
		return nil
	case len(missing) > 1 || len(rest) == 0 || !sameName(rest):
		return fmt.Errorf("the data have no values for input %s%s", describe(a.model.inputs[missing[0]]), found(rest))
	}
	a.assignTo(missing[0], rest)
	return nil
}

// assignTo assigns arrays with other names to input i.
func (a *arrays) assignTo(i int, given []*array) {
	a.columns[i] = given
	what, verb := "the array", "is"
	if name := given[0].name; name != "" {
		what = fmt.Sprintf("array %q", name)
	}
	if more := len(given) - 1; more > 0 {
		what, verb = fmt.Sprintf("%s and %d more", what, more), "are"
	}
	a.taken = append(a.taken, fmt.Sprintf("%s: %s %s taken for input %q", given[0].path, what, verb, a.model.inputs[i].GetName()))
}

// sameName reports whether arrays have one name, except for numbers at the end.
func sameName(arrays []*array) bool {
	name := func(x *array) string { return numberAtEnd.ReplaceAllString(x.name, "") }
	return !slices.ContainsFunc(arrays, func(x *array) bool { return name(x) != name(arrays[0]) })
}

func found(rest []*array) string {
	if len(rest) == 0 {
		return ""
	}
	var names []string
	for _, x := range rest {
		names = append(names, strconv.Quote(x.name))
	}
	return "; they have " + strings.Join(names, ", ")
}

// split says how an array divides into samples.
func (x *array) split(info *onnxpb.ValueInfoProto) error {
	if !convertible(x.typ, typeOf(info)) {
		return fmt.Errorf("the array has elements of type %v", x.typ)
	}
	shape := info.GetType().GetTensorType().GetShape()
	dims := shape.GetDim()
	bad := fmt.Errorf("the array has shape %v", x.dims)
	switch {
	case shape == nil && len(x.dims) == 0 || shape != nil && len(x.dims) == 0 && len(dims) == 0:
		x.rows, x.shape, x.count = 0, x.dims, 1
		return nil
	case shape == nil || len(x.dims) == len(dims) && len(dims) > 0:
		x.rows = 1
		if len(dims) > 0 {
			if n, fixed := execute.FixedSize(dims[0]); fixed {
				x.rows = n
			}
			dims = dims[1:]
		}
		x.shape = append([]int64{x.rows}, x.dims[1:]...)
	case len(x.dims) == len(dims)+1:
		x.rows, x.shape = 1, x.dims[1:]
	default:
		return bad
	}
	inner := x.shape[len(x.shape)-len(dims):]
	for i, d := range dims {
		if !fitsSize(inner[i], d) {
			return bad
		}
	}
	if x.rows == 0 {
		return bad
	}
	if more := x.dims[0] % x.rows; more != 0 {
		return fmt.Errorf("%w, and %d rows are not a multiple of %d, the batch that the model takes: %s", bad, x.dims[0], x.rows, x.repair(more))
	}
	x.count = int(min(x.dims[0]/x.rows, maxSamples))
	return nil
}

// repair suggests how to make the rows a multiple of the batch.
func (x *array) repair(more int64) string {
	add := fmt.Sprintf("add %d", x.rows-more)
	if more == x.dims[0] {
		return add
	}
	return fmt.Sprintf("leave %d out, or %s", more, add)
}

// balance counts the samples, which must be as many for each input, or one.
func (a *arrays) balance(paths []string) error {
	a.n = 1
	first := -1
	for i, column := range a.columns {
		n := samplesOf(column)
		if len(column) == 0 || n == 1 {
			continue
		}
		if first >= 0 && n != a.n {
			return fmt.Errorf("%s: %d samples of input %q, but %d of %q", strings.Join(paths, ", "),
				a.n, a.model.inputs[first].GetName(), n, a.model.inputs[i].GetName())
		}
		first, a.n = i, n
	}
	return nil
}

func samplesOf(column []*array) (n int) {
	for _, x := range column {
		n = min(n+x.count, maxSamples)
	}
	return n
}

// count implements source.
func (a *arrays) count(int) (int, error) { return a.n, nil }

// each implements source.
func (a *arrays) each(yield func([]*execute.Tensor) error) error {
	readers := make([]*reader, len(a.columns))
	for i, column := range a.columns {
		info := a.model.inputs[i]
		readers[i] = &reader{column: column, name: info.GetName(), typ: typeOf(info), same: samplesOf(column) == 1}
		defer readers[i].close()
	}
	for range a.n {
		inputs := make([]*execute.Tensor, len(readers))
		for i, r := range readers {
			if len(r.column) == 0 {
				continue
			}
			var err error
			if inputs[i], err = r.next(); err != nil {
				return err
			}
		}
		if err := yield(inputs); err != nil {
			return err
		}
	}
	return nil
}

// reader reads the samples of an input.
type reader struct {
	name   string
	typ    dtype.DType // of the input
	column []*array    // arrays still to be read; the first one is open
	same   bool        // there is one sample
	only   *execute.Tensor
	file   *npy.File
	rows   func(n int64) ([]byte, error)
	done   int // samples of the first array
}

func (r *reader) close() {
	if r.file != nil {
		r.file.Close()
		r.file = nil
	}
	r.rows, r.done = nil, 0
}

// next returns the next sample.
func (r *reader) next() (*execute.Tensor, error) {
	if r.only != nil {
		return r.only, nil
	}
	for r.done == r.column[0].count {
		r.close()
		r.column = r.column[1:]
	}
	x := r.column[0]
	if r.rows == nil {
		if err := r.open(x); err != nil {
			return nil, err
		}
	}
	data, err := r.rows(x.rows)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", x.location(), err)
	}
	r.done++
	t, err := converted(&execute.Tensor{Name: r.name, DType: x.typ, Dims: x.shape, Data: data}, r.typ)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", x.location(), err)
	}
	if r.same {
		r.only = t
	}
	return t, nil
}

var errChanged = errors.New("the file has changed meanwhile")

// open opens an array.
func (r *reader) open(x *array) error {
	if strings.EqualFold(filepath.Ext(x.path), ".pb") {
		t, err := execute.ReadTensorProto(x.path)
		if err != nil {
			return err
		}
		if t.DType != x.typ || !slices.Equal(t.Dims, x.dims) {
			return fmt.Errorf("%s: %w", x.path, errChanged)
		}
		left, size := t.Data, len(t.Data)/x.count
		r.rows = func(int64) ([]byte, error) {
			sample := left[:size]
			left = left[size:]
			return sample, nil
		}
		return nil
	}
	var err error
	if r.file, err = npy.Open(x.path); err != nil {
		return err
	}
	a, err := r.file.Array(x.member)
	if err != nil {
		return err
	}
	if typ, err := execute.ArrayType(a); err != nil || typ != x.typ || !slices.Equal(a.Shape, x.dims) {
		return fmt.Errorf("%s: %w", x.path, errChanged)
	}
	r.rows = func(n int64) ([]byte, error) {
		if n == 0 {
			return a.ReadAll(execute.MaxBytes)
		}
		return a.ReadRows(n, execute.MaxBytes)
	}
	return nil
}
