package commit

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"onnxquant/internal/modelfile"
	"onnxquant/internal/msg"
)

// Beside a target <out> there may be
//
//	<out>.data       its external data, if no other name is asked for
//	<out>.data_1     more of it
//	<out>.~lock      the lock, which is also a journal
//	<out>.~ABC       temporary external data; its name is as long as the final one, in which
//	                 it replaces the last characters
//	<out>.~ABC.new   second name of <out>.~ABC, before it is renamed to <out>.data
//	<out>.~ABC.tmp   temporary model; its name does not end in .onnx
//	<out>.~ABC.ref   interim model, which refers to the temporary external data
//	<out>.~try       folder with second names of the temporary files, under their final names
//
// where ABC is random. Only the owner of the lock may touch them.
const (
	dataSuffix    = ".data"
	modelSuffix   = ".tmp"
	interimSuffix = ".ref"
	secondSuffix  = ".new"
	trySuffix     = ".~try"
)

var (
	temporary     = regexp.MustCompile(`^\.~[A-Z2-7]{3}(\.tmp|\.ref|\.new)?$`)
	temporaryData = regexp.MustCompile(`~[A-Z2-7]{3}$`)
	shard         = regexp.MustCompile(`^(_[1-9][0-9]?)?$`)
)

// DataNames returns the names of n external data files of the model file at path. The first is called
// name or, if name is "", the model's name with .data; the next ones name_1, name_2 and so on. If path
// is a symbolic link, they are named after the link's target.
func DataNames(path, name string, n int) []string {
	if name == "" {
		if real, err := follow(path); err == nil {
			path = real
		}
		name = filepath.Base(dataPath(path))
	}
	names := make([]string, n)
	for i := range names {
		names[i] = shardName(name, i)
	}
	return names
}

func shardName(name string, i int) string {
	if i == 0 {
		return name
	}
	return name + "_" + strconv.Itoa(i)
}

// Beside returns the path of the file called name in the folder of the model file at path. If path is
// a symbolic link, that is the folder of the link's target.
func Beside(path, name string) string {
	if real, err := follow(path); err == nil {
		path = real
	}
	return filepath.Join(filepath.Dir(path), name)
}

func dataPath(path string) string { return path + dataSuffix }

// temporaryName replaces the end of a data file's name.
func temporaryName(name, random string) string { return name[:len(name)-1-len(random)] + "~" + random }

// CheckDataName checks a name for external data files.
func CheckDataName(name string) error {
	switch end := len(name) - 4; {
	case strings.ContainsRune(name, '/') || filepath.Base(name) != name:
		return fmt.Errorf("external data %s: want the name of a file, which lies beside the model", msg.Quote(name))
	case strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }):
		return fmt.Errorf("external data %s: the name has characters that cannot be printed", msg.Quote(name))
	case end < 1 || !utf8.RuneStart(name[end]):
		return fmt.Errorf("external data %s: the name needs at least 5 characters", msg.Quote(name))
	case strings.EqualFold(filepath.Ext(name), ".onnx"):
		return fmt.Errorf("external data %s: the name is that of a model", msg.Quote(name))
	}
	return modelfile.CheckLocation(name)
}

// dataFiles lists the names of data files that this target may own: the given names, the default name,
// and further files of the same series.
func dataFiles(path string, here, names []string) []string {
	found := slices.Clone(names)
	for _, first := range append([]string{filepath.Base(dataPath(path))}, names[:min(1, len(names))]...) {
		for _, name := range here {
			if rest, ok := strings.CutPrefix(name, first); ok && shard.MatchString(rest) && !slices.Contains(found, name) {
				found = append(found, name)
			}
		}
	}
	return found
}

// follow resolves symbolic links. The file they lead to need not exist.
func follow(path string) (string, error) {
	if path == "" {
		return "", errors.New("the name is empty")
	}
	for range 40 {
		link, err := os.Readlink(path)
		if err != nil {
			return path, nil // no link
		}
		if !filepath.IsAbs(link) {
			folder, _ := filepath.Split(path)
			link = folder + link
		}
		folder, name := filepath.Split(link)
		if folder, err = filepath.EvalSymlinks(folder); err != nil {
			return "", fmt.Errorf("it is a symbolic link to %s: %w", link, msg.Cause(err))
		}
		path = filepath.Join(folder, name)
	}
	return "", errors.New("it is a cycle of symbolic links")
}
