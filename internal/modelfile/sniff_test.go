package modelfile

import (
	"errors"
	"strings"
	"testing"
)

// Files of other kinds are called by their names.
func TestOtherFiles(t *testing.T) {
	for content, want := range map[string]string{
		"version https://git-lfs.github.com/spec/v1\noid sha256:00\n": "git lfs pull",
		"GGUF\x03\x00\x00\x00":               "a GGUF file",
		"PK\x03\x04\x00\x00archive/data.pkl": "PyTorch",
		"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.\x80\x02}q\x00(X\x10\x00\x00\x00protocol": "a PyTorch file of the legacy format; export the model to ONNX",
		"\x80\x02}q\x00X\x01\x00\x00\x00aq\x01]q\x02":                                                        "a Python pickle",
		"\x80\x04\x95\n\x00\x00\x00\x00\x00\x00\x00}\x94\x8c\x01a":                                           "a Python pickle",
		"\x93NUMPY\x01\x00v\x00{'descr'":                                                                     "a NumPy array",
		"\x28\xb5\x2f\xfd\x04\x00":                                                                           "zstd",
		"\xfd7zXZ\x00\x00\x04":                                                                               "xz",
		"7z\xbc\xaf\x27\x1c\x00\x04":                                                                         "a 7z archive",
		"model.onnx" + strings.Repeat("\x00", 247) + "ustar\x00":                                             "a tar archive",
		"\x89HDF\r\n\x1a\n":                                                                                  "HDF5",
		"\x1c\x00\x00\x00TFL3":                                                                               "TensorFlow Lite",
		"\x1c\x00\x00\x00ORTM\x00":                                                                           "ONNX Runtime",
		"\x1f\x8b\x08\x00":                                                                                   "gzip",
		"\x40\x00\x00\x00\x00\x00\x00\x00{\"a\":{":                                                           "safetensors",
		"<!DOCTYPE html>\n":                                                                                  "it is a web page; the download went wrong",
		"Le modèle\n" + strings.Repeat("é", 300):                                                             "it is text",
		"":                        "it is empty",
		"\xff\xfe":                "at offset 0",
		"text, and\x00then bytes": "offset",
	} {
		m, err := Open(writeBytes(t, []byte(content)))
		if err == nil {
			m.Close()
			t.Fatalf("%q is a model", content)
		}
		if !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %q, want %q", content, err, want)
		}
	}
}
