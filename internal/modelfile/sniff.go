package modelfile

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"
)

// otherFormats lists formats that users mistake for ONNX: bytes at an offset, and a hint for the user.
var otherFormats = []struct {
	at          int
	magic, what string
}{
	{0, "version https://git-lfs.github.com/", "a Git LFS pointer; run git lfs pull to get the model"},
	{0, "<!DOCTYPE html", "a web page; the download went wrong"},
	{0, "<!doctype html", "a web page; the download went wrong"},
	{0, "<html", "a web page; the download went wrong"},
	{0, "GGUF", "a GGUF file; give the ONNX model, and this file to --weights-from"},
	{0, "PK\x03\x04", "a zip archive, such as PyTorch saves; export the model to ONNX"},
	{0, "\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.", "a PyTorch file of the legacy format; export the model to ONNX"},
	{0, "\x80\x02", "a Python pickle, such as PyTorch saves; export the model to ONNX"},
	{0, "\x80\x03", "a Python pickle, such as PyTorch saves; export the model to ONNX"},
	{0, "\x80\x04\x95", "a Python pickle, such as PyTorch saves; export the model to ONNX"},
	{0, "\x80\x05\x95", "a Python pickle, such as PyTorch saves; export the model to ONNX"},
	{0, "\x93NUMPY", "a NumPy array, not a model"},
	{0, "\x89HDF\r\n", "an HDF5 file, such as Keras saves; export the model to ONNX"},
	{4, "TFL3", "a TensorFlow Lite model; convert it with tf2onnx"},
	{4, "ORTM", "an ONNX Runtime model (.ort); use the ONNX file it was made from"},
	{0, "\x1f\x8b", "compressed with gzip; unpack it"},
	{0, "\x28\xb5\x2f\xfd", "compressed with zstd; unpack it"},
	{0, "\xfd7zXZ\x00", "compressed with xz; unpack it"},
	{0, "7z\xbc\xaf\x27\x1c", "a 7z archive; unpack it"},
	{257, "ustar", "a tar archive; unpack it"},
	{8, "{\"", "a safetensors file; export the model to ONNX"},
}

// sniffed is how many bytes tell a format.
const sniffed = 512

// explain replaces an error about the encoding by one that names the real format of
// the file, if it is known.
func explain(err error, r io.ReaderAt) error {
	head := make([]byte, sniffed)
	n, _ := r.ReadAt(head, 0)
	if what := sniff(head[:n]); what != "" {
		return fmt.Errorf("%w: it is %s", ErrFormat, what)
	}
	return err
}

// What Kind returns for files that commands write.
const (
	KindONNX = "an ONNX model"
	KindGGUF = "a GGUF file"
)

// modelTags are the first bytes that a ModelProto may have: the tags of its fields.
const modelTags = "\x08\x12\x1a\x22\x28\x32\x3a\x42\x72\xa2\xca\xd2"

// Kind guesses the kind of a file from its first bytes. It returns "" if overwriting loses nothing:
// the file is missing, empty or not regular.
func Kind(path string) string {
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() || info.Size() == 0 {
		return ""
	}
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	head := make([]byte, sniffed)
	n, _ := f.ReadAt(head, 0)
	if what := sniff(head[:n]); what != "" {
		what, _, _ = strings.Cut(what, ";") // without advice
		return what
	}
	if n > 0 && strings.IndexByte(modelTags, head[0]) >= 0 {
		return KindONNX
	}
	return "no model"
}

// sniff names the format of a file from its first bytes, or returns "".
func sniff(head []byte) string {
	for _, o := range otherFormats {
		if len(head) >= o.at && bytes.HasPrefix(head[o.at:], []byte(o.magic)) {
			return o.what
		}
	}
	if isText(head) {
		return "text"
	}
	return ""
}

// isText reports whether bytes are printable UTF-8 text. The last character may be cut
// off.
func isText(b []byte) bool {
	for range utf8.UTFMax - 1 {
		if r, n := utf8.DecodeLastRune(b); r == utf8.RuneError && n == 1 {
			b = b[:len(b)-1]
		}
	}
	return len(b) > 0 && utf8.Valid(b) && !strings.ContainsFunc(string(b), func(r rune) bool {
		return r < ' ' && !strings.ContainsRune("\t\n\r\f", r) || r == 0x7f
	})
}
