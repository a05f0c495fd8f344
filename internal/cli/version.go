package cli

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
)

// VersionCommand shows the version.
func VersionCommand() Command {
	return Command{
		Name: "version", Rare: true, Summary: "show the version",
		Args:  []string{""},
		Text:  "Shows the version of onnxquant, of Go, and the platform.",
		Flags: HelpFlagAlone,
		Run:   runVersion,
	}
}

func runVersion(_ context.Context, c *Console, args []string) error {
	fs := HelpFlagAlone()
	if err := c.App.Parse(fs, args); err != nil {
		return err
	}
	if fs.Changed("help") {
		return c.Help("version")
	}
	if fs.NArg() > 0 {
		return Usagef("version takes no arguments; for a model file named version, write ./version")
	}
	c.PrintVersion()
	return nil
}

// PrintVersion prints the version of the program, of Go, and the platform.
func (c *Console) PrintVersion() {
	fmt.Fprintf(c.Stdout, "onnxquant %s (%s%s %s/%s)\n", c.App.Version, revision(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// revision returns the first digits of the commit that the command was built from, if the Go tool
// recorded it.
func revision() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" && len(s.Value) > 12 {
				return s.Value[:12] + ", "
			}
		}
	}
	return ""
}

// BuildDate is the day of the commit that the command was built from, or "".
func BuildDate() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.time" && len(s.Value) >= len("2006-01-02") {
				return s.Value[:len("2006-01-02")]
			}
		}
	}
	return ""
}

// BuildVersion is the version that the Go tool recorded.
func BuildVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "devel"
	}
	// A tag, with +dirty if files were changed since; "(devel)" outside a repository.
	return strings.Trim(info.Main.Version, "()")
}
