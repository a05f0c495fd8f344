package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"

	"google.golang.org/protobuf/proto"

	"onnxquant/internal/cli"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/testing/modeltest"
	"onnxquant/onnxq"
	"onnxquant/spec"
	"onnxquant/testmodels"
)

// Commands as users give them, on models that are in order and models that are not.
// Whatever a model is, a command keeps to its time and memory and leaves its input alone.
// It fails with one line and no file; or it writes a model that the other commands read, and
// in which verify finds nothing but weights changed.
//
// A case is a number: -commands.seed N -commands.count 1 repeats it. make commands tries more.
var (
	commandCount  = flag.Int("commands.count", 300, "commands to try")
	commandSeed   = flag.Uint64("commands.seed", 1, "number of the first case")
	commandFolder = flag.String("commands.models", "", "folder of more models to begin with")
	commandKeep   = flag.String("commands.keep", "", "folder that keeps the files of the cases")
)

// What a command may take. All models are small; the time is that of a busy machine.
const (
	commandTime   = 20 * time.Second
	commandMemory = 256 << 20
)

func TestCommands(t *testing.T) {
	t.Setenv("GODEBUG", "tracebacklabels=1") // a panic anywhere then names the command
	models := commandModels(t)
	var total tally
	for seed := *commandSeed; total.commands < *commandCount && !t.Failed(); seed++ {
		rng := rand.New(rand.NewPCG(seed, 0))
		folder, err := os.MkdirTemp(*commandKeep, "case")
		if err != nil {
			t.Fatal(err)
		}
		c := commandCase{T: t, rng: rng, folder: folder, tally: &total, name: fmt.Sprintf("-commands.seed %d", seed)}
		c.try(pickOf(rng, models), pickOf(rng, models))
		if *commandKeep == "" {
			os.RemoveAll(folder)
		}
	}
	t.Logf("%d commands, %d with status 0, %d failures with a message; verify refused %d outputs; slowest %v, most memory %d MiB",
		total.commands, total.status[0], total.commands-total.status[0], total.refused, total.slowest.Round(time.Millisecond), total.memory>>20)
}

// FuzzCommands lets the fuzzer choose the models.
func FuzzCommands(f *testing.F) {
	for i, model := range commandModels(f) {
		f.Add(model.bytes, model.bytes, uint64(i))
	}
	f.Fuzz(func(t *testing.T, model, other []byte, seed uint64) {
		rng := rand.New(rand.NewPCG(seed, 1))
		c := commandCase{T: t, rng: rng, folder: t.TempDir(), tally: &tally{}, name: "this input"}
		c.try(commandModel{bytes: model}, commandModel{bytes: other})
	})
}

// A commandModel is a model to begin with.
type commandModel struct {
	bytes   []byte
	inOrder bool
}

// commandModels are the seeds of all fuzz targets, one test model of each kind, and those of
// -commands.models.
func commandModels(t testing.TB) (models []commandModel) {
	const largest = 1 << 16
	for name, model := range testmodels.Seeds() {
		models = append(models, commandModel{model, strings.HasPrefix(name, "structures/")})
	}
	for _, kind := range testmodels.Kinds() {
		m, err := testmodels.Build(kind.Name, 1)
		if err != nil {
			t.Fatal(err)
		}
		b, err := proto.Marshal(m.Proto)
		if err != nil {
			t.Fatal(err)
		}
		if len(b) <= largest {
			models = append(models, commandModel{b, true})
		}
	}
	if *commandFolder == "" {
		return models
	}
	root, err := filepath.EvalSymlinks(*commandFolder)
	if err != nil {
		t.Fatal(err)
	}
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".onnx" || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if err != nil || info.Size() > largest {
			return err
		}
		b, err := os.ReadFile(path)
		models = append(models, commandModel{b, false})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return models
}

func pickOf[T any](rng *rand.Rand, list []T) T { return list[rng.IntN(len(list))] }

// tally counts what was tried.
type tally struct {
	commands int
	status   [4]int
	slowest  time.Duration
	memory   uint64
	refused  int // outputs, by verify
}

// A commandCase is a model on which some commands are tried.
type commandCase struct {
	*testing.T
	*tally
	rng    *rand.Rand
	folder string
	name   string // how to repeat it
	files  int

	inOrder bool // the models are in order, as far as is known

	said, printed string // the last command, and what it printed
}

// try gives a model to some commands: mutated, or as it is where it is no protobuf message.
// What one of them wrote, as it is or mutated, is the model of the next round.
func (c *commandCase) try(model, other commandModel) {
	a, b := &onnxpb.ModelProto{}, &onnxpb.ModelProto{}
	c.inOrder = model.inOrder
	if proto.Unmarshal(model.bytes, a) == nil && proto.Unmarshal(other.bytes, b) == nil {
		c.change(a, b)
		model.bytes = c.marshal(a)
	}
	in, beside := c.write(model.bytes), c.write(other.bytes)
	for range 3 {
		out := c.round(in, beside)
		if c.Failed() || out == "" {
			return
		}
		beside, in = in, out
		if c.rng.IntN(2) == 0 {
			m := modeltest.Read(c, out)
			c.change(m, b)
			in = c.write(c.marshal(m)) // its external data is made anew
		}
	}
}

// change changes a model, in ways that may spoil it or in others.
func (c *commandCase) change(m, other *onnxpb.ModelProto) {
	if c.rng.IntN(2) == 0 {
		modeltest.Vary(c.rng, m)
	}
	if c.rng.IntN(2) == 0 {
		modeltest.Mutate(c.rng, m, other)
		c.inOrder = false
	}
}

// round tries a command on a model, and others on what it writes. It returns the path of
// the model that was written, if any.
func (c *commandCase) round(in, beside string) (out string) {
	switch c.rng.IntN(12) {
	case 0:
		c.run(nil, "--dry-run", c.planning(), in)
	case 1:
		c.run(nil, "inspect", c.planning(), in)
	case 2:
		c.run(nil, "diff", in, beside)
	case 3:
		c.run(nil, "verify", "--engine", pickOf(c.rng, []string{"none", "go"}), in, beside)
	case 4:
		c.run(nil, "analyze", "--candidates", pickOf(c.rng, []string{"int4,int8", "int4:32:zp,nf4,q4_k", "int2,int4:channel,mxfp4"}), "--ops", "all", in)
	case 5:
		return c.weightsFrom(in, beside)
	case 6, 7:
		return c.rewritten(in, "dequantize")
	case 8, 9:
		return c.rewritten(in, "restyle", "--style", pickOf(c.rng, []string{"dq", "nbits"}))
	default:
		if out = c.output(".onnx"); c.run([]string{out}, c.planning(), c.writing(), in, out) == 0 {
			c.check(in, out)
			return out
		}
	}
	return ""
}

// rewritten tries a command that keeps the values of weights.
func (c *commandCase) rewritten(in string, command ...string) (out string) {
	out = c.output(".onnx")
	if c.run([]string{out}, append(command, c.writing(), in, out)...) != 0 {
		return ""
	}
	c.check(in, out)
	return out
}

// weightsFrom writes the weights to a GGUF file, and converts a model with weights read from it.
func (c *commandCase) weightsFrom(in, beside string) (out string) {
	file := c.output(".gguf")
	if c.run([]string{file}, "gguf", "--mix", pickOf(c.rng, []string{"F32", "F16", "Q8_0", "Q4_K_M", "Q4_0", "MXFP4"}), in, file) != 0 {
		return ""
	}
	if c.run(nil, "gguf", "--list", file) != 0 {
		c.Errorf("%s: gguf wrote what it does not list", c.name)
	}
	if c.rng.IntN(3) == 0 {
		b, err := os.ReadFile(file)
		if err != nil {
			c.Fatal(err)
		}
		for range 1 + c.rng.IntN(4) {
			b[c.rng.IntN(len(b))] ^= 1 << c.rng.IntN(8)
		}
		if err := os.WriteFile(file, b, 0o666); err != nil {
			c.Fatal(err)
		}
		in = pickOf(c.rng, []string{in, beside})
	}
	if out = c.output(".onnx"); c.run([]string{out}, "--weights-from", file, c.planning(), c.writing(), in, out) != 0 {
		return ""
	}
	return out
}

// check gives a model that was written to other commands.
func (c *commandCase) check(in, out string) {
	if c.Failed() {
		return
	}
	made := c.said
	m, err := onnxq.Open(out)
	if err != nil {
		c.Errorf("%s: the output: %v", c.name, err)
		return
	}
	m.Close()
	if c.run(nil, "inspect", out) != 0 {
		c.Errorf("%s: inspect cannot read the output", c.name)
	}
	if c.rng.IntN(3) == 0 {
		page := c.output(".html")
		c.run([]string{page}, "report", "--json", "--engine", "none", "--candidates", pickOf(c.rng, []string{"none", "int8:32"}), "--html", page, in, out)
	}
	if c.run(nil, "verify", "--verbose", "--engine", "none", in, out) == 0 {
		return
	}
	c.refused++
	for line := range strings.Lines(c.printed) {
		// Errors of weights beyond the limits are those of their values.
		if _, failure, ok := strings.Cut(line, "failed: "); ok && c.inOrder && !strings.Contains(failure, "below") {
			c.Errorf("%s\nverify: %s", made, failure)
		}
	}
}

// planning returns flags that choose formats, on one line; run takes them apart.
func (c *commandCase) planning() string {
	flags := []string{"--format " + string(pickOf(c.rng, spec.Formats()))}
	if c.rng.IntN(3) == 0 {
		flags = []string{"--bits " + pickOf(c.rng, []string{"2", "4", "8"})}
		if c.rng.IntN(3) == 0 {
			flags = append(flags, "--zero-point")
		}
		if c.rng.IntN(3) == 0 {
			flags = append(flags, "--range "+pickOf(c.rng, []string{"mse", "percentile:99"}))
		}
		if c.rng.IntN(2) == 0 {
			flags = append(flags, "--block "+pickOf(c.rng, []string{"-1", "2", "3", "16", "32", "1000000"}))
		}
	}
	flags = append(flags, "--style "+pickOf(c.rng, []string{"dq", "dq", "qdq", "nbits"}))
	if c.rng.IntN(2) == 0 {
		flags = append(flags, "--ops all")
	}
	if c.rng.IntN(3) == 0 {
		flags = append(flags, "--target "+pickOf(c.rng, []string{"ort", "tensorrt", "openvino"}))
	}
	return strings.Join(flags, " ")
}

// writing returns flags of commands that write models.
func (c *commandCase) writing() string {
	return "--threads " + strconv.Itoa(1+c.rng.IntN(3)) + " --external-data " + pickOf(c.rng, []string{"auto", "always", "never"})
}

// run runs a command and returns its exit status. It may write the given file, and beside it
// its external data.
func (c *commandCase) run(outputs []string, line ...string) int {
	if c.Failed() {
		return 1
	}
	var args []string
	for _, part := range line {
		if strings.HasPrefix(part, "--") {
			args = append(args, strings.Fields(part)...)
		} else {
			args = append(args, part)
		}
	}
	said := fmt.Sprintf("%s: onnxquant %s", c.name, strings.Join(args, " "))
	before := c.contents()
	var stdout, stderr bytes.Buffer
	status := 0
	pprof.Do(context.Background(), pprof.Labels("case", said), func(ctx context.Context) {
		used := bounded(said, func() {
			status = program().Run(ctx, cli.ConsoleOn(&stdout, &stderr), args)
		})
		c.slowest, c.memory = max(c.slowest, used.time), max(c.memory, used.memory)
	})
	c.commands++
	c.status[min(status, 3)]++

	after := c.contents()
	for _, out := range outputs {
		if _, ok := after[out]; status == 0 && !ok {
			c.Errorf("%s: no output", said)
		}
		// A report of a model that fails has a page, too.
		if status == 0 || args[0] == "report" {
			delete(after, out)
			delete(after, out+".data")
		}
	}
	if !equalFiles(before, after) {
		c.Errorf("%s: status %d, and other files were changed or left", said, status)
	}
	c.checkMessages(said, slices.Contains(args, "--quiet"), status, stdout.String(), stderr.String())
	c.said, c.printed = said, stdout.String()
	return status
}

// checkMessages checks what a command printed.
func (c *commandCase) checkMessages(said string, quiet bool, status int, stdout, stderr string) {
	errorLines := 0
	for line := range strings.Lines(stderr) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, "onnxquant: ") && !strings.HasPrefix(line, "onnxquant: warning: ") {
			errorLines++
		}
		if strings.ContainsFunc(line, unicode.IsControl) || len(line) > 20000 {
			c.Errorf("%s: line of %d bytes: %.2000q", said, len(line), line)
		}
	}
	switch {
	case status > 3:
		c.Errorf("%s: status %d: %.2000s", said, status, stderr)
	case status > 0 && stdout == "" && (errorLines == 0 || errorLines > 1 && quiet):
		c.Errorf("%s: status 1 with %d lines: %.2000s", said, errorLines, stderr)
	}
}

// use is the time and memory that something took.
type use struct {
	time   time.Duration
	memory uint64
}

// bounded runs f, and ends the process if it takes too much.
func bounded(said string, f func()) (used use) {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	heap := func() uint64 {
		metrics.Read(sample)
		return sample[0].Value.Uint64()
	}
	before, start := heap(), time.Now()
	done, checked := make(chan bool), make(chan bool)
	go func() {
		defer close(checked)
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			used.time, used.memory = time.Since(start), max(used.memory, max(before, heap())-before)
			if used.time > commandTime || used.memory > commandMemory {
				debug.SetTraceback("all")
				stacks := make([]byte, 1<<20)
				stacks = stacks[:runtime.Stack(stacks, true)]
				panic(fmt.Sprintf("%s: takes %v and %d MiB\n%s", said, used.time, used.memory>>20, stacks))
			}
			select {
			case <-done:
				return
			case <-tick.C:
			}
		}
	}()
	f()
	used.time = time.Since(start)
	close(done)
	<-checked
	return used
}

func (c *commandCase) marshal(m *onnxpb.ModelProto) []byte {
	b, err := proto.MarshalOptions{AllowPartial: true}.Marshal(m)
	if err != nil {
		c.Fatal(err)
	}
	return b
}

// write writes a model to a folder of its own, and the data that it refers to.
func (c *commandCase) write(model []byte) string {
	data := make([]byte, modeltest.DataSize)
	for i := range data {
		data[i] = byte(i * 37)
	}
	path := c.output(".onnx")
	modeltest.WriteFuzzed(c, path, model, data)
	return path
}

// output returns a new path, in a folder of its own.
func (c *commandCase) output(ext string) string {
	c.files++
	folder := filepath.Join(c.folder, strconv.Itoa(c.files))
	if err := os.Mkdir(folder, 0o777); err != nil {
		c.Fatal(err)
	}
	return filepath.Join(folder, "model"+ext)
}

// contents returns the bytes of all files of the case.
func (c *commandCase) contents() map[string][]byte {
	files := map[string][]byte{}
	for i := range c.files {
		folder := filepath.Join(c.folder, strconv.Itoa(i+1))
		for _, name := range modeltest.List(c, folder) {
			path := filepath.Join(folder, name)
			b, err := os.ReadFile(path)
			if err != nil {
				c.Fatal(err)
			}
			files[path] = b
		}
	}
	return files
}

func equalFiles(a, b map[string][]byte) bool {
	if len(a) != len(b) {
		return false
	}
	for path, content := range a {
		if other, ok := b[path]; !ok || !bytes.Equal(content, other) {
			return false
		}
	}
	return true
}
