package commit

import (
	"os"
	"os/exec"
	"testing"
)

// dies is set where this program does not run its tests, but dieConverting.
const dies = "COMMIT_TEST_DIES"

// TestMain lets tests run parts of themselves in a process of its own, to have it die.
func TestMain(m *testing.M) {
	if os.Getenv(dies) != "" {
		dieConverting(os.Args[1:])
	}
	os.Exit(m.Run())
}

// converting prepares a process that runs dieConverting.
func converting(args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), dies+"=1")
	return cmd
}
