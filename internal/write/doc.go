// Package write lays out the file of a changed model and writes it.
//
// It gets a [graph.Copy] whose structure is complete. [Collect] lists the contents of its
// tensors, [Output.Place] decides where each lies, in the model file or in an external
// data file, and how large the files are: all that is known before any content is made.
// A [File] is then written, read again and given its name, whatever makes its contents.
package write
