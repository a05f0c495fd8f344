package modelfile

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"testing"
)

// childTask names what this program does instead of its tests.
const childTask = "MODELFILE_TEST_TASK"

// TestMain lets tests run parts of themselves in a process of its own, to measure it.
func TestMain(m *testing.M) {
	switch os.Getenv(childTask) {
	case "":
		os.Exit(m.Run())
	case "open":
		measureOpen(os.Args[1])
	}
}

// child prepares a process that does a task.
func child(task string, args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), childTask+"="+task)
	return cmd
}

// measureOpen opens a model and prints the memory that the process took until
// then, and the error.
func measureOpen(path string) {
	debug.SetGCPercent(50) // as in the command
	m, err := Open(path)
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	fmt.Println(stats.Sys)
	if err != nil {
		fmt.Println(err)
	}
	runtime.KeepAlive(m)
}
