package main

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/creack/pty"

	"onnxquant/testmodels"
)

// What is typed before Tab, and the command line that the shell makes of it.
var completed = []struct{ typed, line string }{
	{"onnxquant insp", "onnxquant inspect"},
	{"onnxquant --zero-", "onnxquant --zero-point"},
	{"onnxquant -zero-", "onnxquant -zero-point"},
	{"onnxquant --format nvf", "onnxquant --format nvfp4"},
	{"onnxquant -f nvf", "onnxquant -f nvfp4"},
	{"onnxquant --format=nvf", "onnxquant --format=nvfp4"},
	{"onnxquant --algorithm k_", "onnxquant --algorithm k_quant"},
	{"onnxquant --preset transf", "onnxquant --preset transformers.js"},
	{"onnxquant --preset my-s", "onnxquant --preset my-settings.json"},
	{"onnxquant --calib sel", "onnxquant --calib self"},
	{"onnxquant --calib my-s", "onnxquant --calib my-settings.json"},
	{"onnxquant verify --engine or", "onnxquant verify --engine ort"},
	{"onnxquant --ops MatMul,Gem", "onnxquant --ops MatMul,Gemm"},
	{"onnxquant gguf --mix Q9", "onnxquant gguf --mix Q9"}, // nothing to offer
	{"onnxquant my-mod", "onnxquant my-model.onnx"},
	{"onnxquant my-model.onnx --exclude layer", "onnxquant my-model.onnx --exclude layer0/MatMul:0"},
	{"onnxquant my-model.onnx --exclude layer0/MatMul:", "onnxquant my-model.onnx --exclude layer0/MatMul:0"},
	{"onnxquant my-model.onnx --exclude=layer0", "onnxquant my-model.onnx --exclude=layer0/MatMul:0"},
	{"onnxquant --precision-info my-s", "onnxquant --precision-info my-settings.json"},
}

// Real shells complete, where they are installed. The words that they then have are printed.
func TestCompletionInShells(t *testing.T) {
	folder := t.TempDir()
	m := testmodels.MLP(1, 8, 8)
	m.Proto.Graph.Initializer[0].Name = new("layer0/MatMul:0")
	for _, n := range m.Proto.Graph.Node {
		for i := range n.Input {
			if n.Input[i] == "w0" {
				n.Input[i] = "layer0/MatMul:0"
			}
		}
	}
	if err := m.Write(filepath.Join(folder, "my-model.onnx")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "my-settings.json"), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	for _, shell := range []struct {
		name, source string
		args         []string
	}{
		{"bash", "source <(onnxquant completion bash)", []string{"--norc", "--noprofile", "-i"}},
		{"zsh", "autoload -Uz compinit; compinit -u -D; source <(onnxquant completion zsh)", []string{"-f", "-i"}},
		{"fish", "onnxquant completion fish | source", []string{"--no-config", "-i"}},
	} {
		t.Run(shell.name, func(t *testing.T) {
			if _, err := exec.LookPath(shell.name); err != nil {
				t.Skipf("%s is not installed", shell.name)
			}
			s := startShell(t, folder, shell.name, shell.args...)
			s.send(shell.source + "\n")
			s.send("echo re''ady\n")
			s.wait("ready")
			for _, c := range completed {
				s.clear()
				s.send(c.typed + "\t")
				s.send("\x01printf '<%s>' \n") // at the beginning of the line
				s.wait("<" + strings.Join(strings.Fields(c.line), "><") + ">")
			}
		})
	}
}

// shell is a shell in a terminal.
type shell struct {
	*testing.T
	terminal *os.File
	mu       sync.Mutex
	screen   bytes.Buffer
}

func startShell(t *testing.T, folder, name string, args ...string) *shell {
	cmd := exec.Command(name, args...)
	cmd.Dir = folder
	cmd.Env = append(os.Environ(), "TERM=xterm", "PS1=$ ", "HOME="+folder)
	terminal, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 40, Cols: 200})
	if err != nil {
		t.Fatal(err)
	}
	s := &shell{T: t, terminal: terminal}
	go func() {
		b := make([]byte, 1<<12)
		for {
			n, err := terminal.Read(b)
			s.mu.Lock()
			s.screen.Write(b[:n])
			s.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		cmd.Process.Kill()
		terminal.Close()
		cmd.Wait()
	})
	return s
}

func (s *shell) send(keys string) {
	if _, err := io.WriteString(s.terminal, keys); err != nil {
		s.Fatal(err)
	}
}

func (s *shell) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.screen.Reset()
}

// wait waits until the terminal shows a text.
func (s *shell) wait(text string) {
	s.Helper()
	for range 5000 { // much longer than it takes
		s.mu.Lock()
		screen := s.screen.String()
		s.mu.Unlock()
		if strings.Contains(screen, text) {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Fatalf("the terminal does not show %q, but %q", text, s.screen.String())
}
