package modelfile

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"onnxquant/formats/dtype"
	"onnxquant/internal/onnxpb"
)

// What leads out of the model's folder on some system is refused on all, and what
// Windows takes for another file than the name says is refused there.
func TestLocations(t *testing.T) {
	const both, windows, none = "both", "windows", "none"
	for location, refused := range map[string]string{
		"w.bin":                          none,
		"a/b/w.bin":                      none,
		"./a/../w.bin":                   none,
		"./w.bin":                        none,
		".//a/./w.bin":                   none,
		"a/../w.bin":                     none,
		"w.bin/":                         both,
		"w.bin/.":                        both,
		"w.bin//":                        both,
		"w.bin/a/..":                     both,
		"a/w.bin/..":                     both,
		".":                              both,
		"a/..":                           both,
		"...":                            windows,
		"..w":                            none,
		"C:/w.bin":                       both,
		"c:w.bin":                        both,
		`C:\w.bin`:                       both,
		`\\server\share\w.bin`:           both,
		"//server/share/w.bin":           both,
		`\\?\C:\w.bin`:                   both,
		"//?/C:/w.bin":                   both,
		`\\.\PhysicalDrive0`:             both,
		"//./COM1":                       both,
		`\w.bin`:                         both,
		"/w.bin":                         both,
		`a\..\..\w.bin`:                  both,
		"../w.bin":                       both,
		"a/../../w.bin":                  both,
		"a/./../..//w.bin":               both,
		".. /w.bin":                      windows,
		"../":                            both,
		".../w.bin":                      windows,
		"w.bin:stream":                   windows,
		"w.bin::$DATA":                   windows,
		"a:b":                            both,
		"weights:0":                      windows,
		"con":                            windows,
		"a/NUL":                          windows,
		"Aux.bin":                        windows,
		"prn .bin":                       windows,
		"com1":                           windows,
		"COM¹.bin":                       windows,
		"lpt9.tar.gz":                    windows,
		"CONIN$":                         windows,
		"conout$.bin":                    windows,
		"com10":                          none,
		"console":                        none,
		"w.con":                          none,
		"w.bin.":                         windows,
		"w.bin ":                         windows,
		"w\x00.bin":                      both,
		"\xff.bin":                       both,
		"":                               both,
		strings.Repeat("a/", 2049) + "w": both,
	} {
		for _, system := range []string{"linux", windows} {
			want := refused == both || refused == system
			if err := checkLocationOn(system, location); (err != nil) != want {
				t.Errorf("%s: %q: error %v", system, location, err)
			}
		}
	}
}

// The folder's files change all the time between being looked at and being opened:
// nothing outside of it is ever read.
func TestExternalRace(t *testing.T) {
	w := tensor(dtype.Uint8, 6)
	w.DataLocation = onnxpb.TensorProto_EXTERNAL.Enum()
	w.ExternalData = []*onnxpb.StringStringEntryProto{{Key: ptr("location"), Value: ptr("sub/w.bin")}}
	model := writeModel(t, model(w))
	here, outside := filepath.Dir(model), t.TempDir()
	for folder, content := range map[string]string{outside: "secret", filepath.Join(here, "sub"): "inside"} {
		if err := os.MkdirAll(folder, 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, "w.bin"), []byte(content), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	link := filepath.Join(here, "link")
	symlink(t, outside, link)
	stop, done := make(chan bool), make(chan bool)
	go func() {
		defer close(done)
		sub, away := filepath.Join(here, "sub"), filepath.Join(here, "away")
		for {
			select {
			case <-stop:
				return
			default:
				os.Rename(sub, away)
				os.Rename(link, sub)
				os.Rename(sub, link)
				os.Rename(away, sub)
			}
		}
	}()
	inside := 0
	for range 2000 {
		m, err := Open(model)
		if err != nil {
			continue
		}
		p, err := m.Payload(m.Proto.Graph.Initializer[0])
		if err != nil {
			t.Fatal(err)
		}
		if got := content(t, p); !bytes.Equal(got, []byte("inside")) {
			t.Errorf("read %q", got)
		}
		m.Close()
		inside++
	}
	close(stop)
	<-done
	if inside == 0 {
		t.Error("no model was opened")
	}
}
