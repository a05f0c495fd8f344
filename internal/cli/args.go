package cli

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/dustin/go-humanize/english"
	"github.com/spf13/pflag"

	"onnxquant/internal/msg"
	"onnxquant/internal/remote"
)

// InOut returns the input and output file of a command. With dryRun the output may be
// absent.
func InOut(fs *pflag.FlagSet, dryRun bool) (in, out string, err error) {
	args := fs.Args()
	for _, name := range args {
		switch name {
		case "":
			return "", "", Usagef("a file name is empty")
		case "-":
			return "", "", Usagef("- for standard input or output is not supported; for a file named -, write ./-")
		}
	}
	switch {
	case len(args) == 0:
		return "", "", Usagef("no input file given")
	case len(args) == 1 && dryRun:
		return args[0], "", nil
	case len(args) == 1 && isFolder(args[0]):
		return "", "", Usagef("no output folder given after %s; --dry-run shows the plan", args[0])
	case len(args) == 1:
		text := cmp.Or(taken(fs), "; onnxquant inspect "+ShellQuoted(args[0])+" shows what it holds")
		return "", "", Usagef("no output file given after %s%s", args[0], text)
	case len(args) > 2:
		return "", "", Usagef("want one input and one output file, got %d files; what is %s?", len(args), unexpected(args))
	}
	return args[0], args[1], nil
}

// WantFile refuses as the output of one model what is no name of a file, a folder, and a name by which ONNX Runtime expects another
// format. It suggests a file name with the extension ext.
func WantFile(in, out, ext string) error {
	if err := remote.CheckFile(out); err != nil {
		return Usagef("%v", err)
	}
	if strings.EqualFold(filepath.Ext(out), ".ort") {
		return Usagef("%s: ONNX Runtime reads a file of this name as its own format, not as ONNX; write %s", out, strings.TrimSuffix(out, filepath.Ext(out))+ext)
	}
	folder, err := os.Stat(out)
	if err != nil || !folder.IsDir() {
		return nil
	}
	base := filepath.Base(in)
	name := filepath.Join(out, strings.TrimSuffix(base, filepath.Ext(base))+ext)
	if _, err := os.Stat(name); err == nil {
		return fmt.Errorf("%s: it is a folder; name a new file in it", out)
	}
	return fmt.Errorf("%s: it is a folder; name a file in it, such as %s", out, name)
}

// unexpected returns the argument that is most likely not a file, or the third.
func unexpected(args []string) string {
	for _, arg := range args {
		if _, err := os.Stat(arg); err != nil && filepath.Ext(arg) == "" {
			return arg
		}
	}
	return args[2]
}

// WrongCount says that a command takes another number of files.
func WrongCount(takes string, fs *pflag.FlagSet) error {
	return Usagef("%s, got %s%s", takes, english.Plural(fs.NArg(), "file", ""), taken(fs))
}

// taken names a flag that took a model as its value: its own is missing.
func taken(fs *pflag.FlagSet) (text string) {
	fs.Visit(func(f *pflag.Flag) {
		for _, value := range f.Annotations[Given] {
			if strings.EqualFold(filepath.Ext(value), ".onnx") && f.NoOptDefVal == "" {
				text = fmt.Sprintf("; %s is the value of --%s", value, f.Name)
			}
		}
	})
	return text
}

// ShellQuoted quotes an argument as a POSIX shell wants it, if it must be quoted.
func ShellQuoted(arg string) string { return msg.ShellQuoted(arg) }

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
