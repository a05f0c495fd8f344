package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"onnxquant/formats/dtype"
	"onnxquant/formats/safetensors"
	"onnxquant/internal/convert"
	"onnxquant/internal/graph"
	"onnxquant/internal/msg"
	"onnxquant/onnxq"
	"onnxquant/onnxq/ggufmodel"
	"onnxquant/rules"
)

// Weights describes what Read read.
type Weights = ggufmodel.WeightsFrom

// Read replaces the contents of float tensors of the model by tensors of the files at path: a GGUF file, a safetensors file,
// the index of several (model.safetensors.index.json), or a folder of safetensors files. The files stay open until the
// model is closed. It fails if the files have none of the model's tensors, or have one with a wrong shape or type.
func Read(m *onnxq.Model, path string, names *rules.Names) (*Weights, error) {
	if err := m.Opened(); err != nil {
		return nil, err
	}
	_, paths, err := filesOf(path)
	if err != nil {
		return nil, err
	}
	if paths == nil {
		if isOther(path) {
			return nil, fmt.Errorf("%s: it has no weights that can be read: want a %s file, an index (%s), a folder of these, or a GGUF file", path, extension, indexEnd)
		}
		return ggufmodel.ReadWeights(m, path, names)
	}
	if err := names.Unused(convert.TensorNames(m.Graph())); err != nil {
		return nil, err
	}
	config, err := readConfig(filepath.Dir(paths[0]))
	if err != nil {
		return nil, err
	}
	c := &checkpoint{path: path, tensors: map[string]tensor{}, config: config, orders: map[*graph.Value][]int32{}}
	for _, p := range paths {
		if err := c.open(m, p); err != nil {
			return nil, err
		}
	}
	w, err := c.replace(m.Graph(), names)
	if err != nil || len(c.orders) == 0 {
		return w, err
	}
	x, err := reordered(m.Graph(), c.orders)
	if err == nil {
		m.SetGraph(x)
	}
	return w, err
}

// isOther reports whether there is a file that does not begin as GGUF does.
func isOther(path string) bool {
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
		return false
	}
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	begin := make([]byte, 4)
	_, err = io.ReadFull(f, begin)
	return err != nil || string(begin) != "GGUF"
}

// Files lists the files that Read reads at path: an index, the files of weights, and the JSON files beside them.
func Files(path string) ([]string, error) {
	index, paths, err := filesOf(path)
	switch {
	case err != nil:
		return nil, err
	case paths == nil:
		return []string{path}, nil
	case index != "":
		paths = append([]string{index}, paths...)
	}
	folder := filepath.Dir(paths[0])
	for _, name := range configs {
		if file := filepath.Join(folder, name); isConfig(file) {
			paths = append(paths, file)
		}
	}
	return paths, nil
}

const (
	extension  = ".safetensors"
	indexEnd   = ".safetensors.index.json"
	mostIndex  = 64 << 20 // bytes
	mostShards = 10_000
)

// filesOf lists the safetensors files at path; nil if it is another file. index is the file that names them; "": there is none.
func filesOf(path string) (index string, list []string, err error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", nil, fmt.Errorf("%s: there is no such file or folder of weights", path)
	case err != nil:
		return "", nil, err
	case strings.HasSuffix(path, indexEnd):
		list, err = shards(path)
		return path, list, err
	case strings.HasSuffix(path, extension):
		return "", []string{path}, nil
	case !info.IsDir():
		return "", nil, nil
	}
	if indexes, _ := filepath.Glob(filepath.Join(escaped(path), "*"+indexEnd)); len(indexes) == 1 {
		list, err = shards(indexes[0])
		return indexes[0], list, err
	}
	list, _ = filepath.Glob(filepath.Join(escaped(path), "*"+extension))
	if len(list) == 0 {
		return "", nil, fmt.Errorf("%s: the folder has no %s files", path, extension)
	}
	return "", list, nil
}

// escaped is a path without wildcards of Glob.
func escaped(path string) string {
	return strings.NewReplacer("*", `\*`, "?", `\?`, "[", `\[`).Replace(path)
}

// shards lists the files that an index names. They lie beside it.
func shards(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > mostIndex {
		return nil, fmt.Errorf("%s: want a file of at most %d MiB", path, mostIndex>>20)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var index struct {
		WeightMap map[string]string `json:"weight_map"`
	}
	if err := json.Unmarshal(data, &index); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	seen := map[string]bool{}
	var list []string
	for _, name := range index.WeightMap {
		if seen[name] {
			continue
		}
		if seen[name] = true; !filepath.IsLocal(name) || filepath.Base(name) != name || len(list) == mostShards {
			return nil, fmt.Errorf("%s: %s is not the name of a file beside it", path, msg.Quote(name))
		}
		list = append(list, filepath.Join(filepath.Dir(path), name))
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%s: it names no files", path)
	}
	slices.Sort(list)
	return list, nil
}

// checkpoint has the tensors of some files.
type checkpoint struct {
	path    string
	tensors map[string]tensor
	config  config
	orders  map[*graph.Value][]int32 // in which weights have the indices of K
}

type tensor struct {
	*safetensors.Tensor
	file *safetensors.File
}

func (t *tensor) content() io.ReaderAt { return t.file.Content(t.Tensor) }

func (t *tensor) elements() int64 {
	n, _ := dtype.Elements(t.Shape)
	return n
}

func (c *checkpoint) open(m *onnxq.Model, path string) error {
	r, size, err := m.Graph().File.Attach(path)
	if err != nil {
		return err
	}
	f, err := safetensors.Read(r, size)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	for i := range f.Tensors {
		t := &f.Tensors[i]
		if _, ok := c.tensors[t.Name]; ok {
			return fmt.Errorf("%s: tensor %s is in another file, too", path, msg.Quote(t.Name))
		}
		c.tensors[t.Name] = tensor{t, f}
	}
	return nil
}

// replace replaces the contents of the model's tensors.
func (c *checkpoint) replace(x *graph.Graph, names *rules.Names) (*Weights, error) {
	w := &Weights{Coded: map[string]int{}, Decoded: map[string]int{}}
	taken := map[string]bool{}
	front := c.module(x, names)
	for _, v := range x.Values {
		if !dtype.DType(v.Tensor.GetDataType()).Float() {
			continue
		}
		w.Of++
		parts, err := c.find(x, v, names, front)
		if err == nil && parts != nil {
			parts, err = c.give(x, v, parts)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.path, err)
		}
		if parts == nil {
			continue
		}
		for _, p := range parts {
			names := []string{p.name, p.name + "_scale", p.name + "_scale_inv"}
			switch {
			case p.stack != nil:
				names = p.stack.uses
			case p.codes != nil:
				names = p.codes.uses
			}
			for _, name := range names {
				taken[name] = true
			}
		}
		w.Tensors = append(w.Tensors, v.Path)
		switch q := together(parts); {
		case parts[0].stack != nil && parts[0].stack.decoded != "":
			w.Decoded[parts[0].stack.decoded]++
		case q != nil && q.why == "":
			w.Coded[q.from]++
		case q != nil:
			w.Decoded[q.from+" with "+q.why]++
		case slices.ContainsFunc(parts, func(p piece) bool { return p.codes != nil }):
			w.Decoded["modules that are joined here and differ in their format"]++
		}
	}
	for name := range c.tensors {
		if taken[name] {
			w.Used++
		} else {
			w.Unused = append(w.Unused, name)
		}
	}
	slices.Sort(w.Unused)
	if len(w.Tensors) == 0 {
		return nil, fmt.Errorf("%s: none of its %d tensors is called like one of the model; a file of names tells which is which", c.path, len(c.tensors))
	}
	return w, nil
}
