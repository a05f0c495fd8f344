// Package write lays out the file of a changed model and writes it.
//
// It gets a [graph.Copy] with its final structure and owns it from then on. [Collect] lists
// the contents of its tensors, and [Output.Place] decides the offset of each, in the model
// file or an external data file. So all sizes are known before any content is computed.
// [File.Write] writes the files, reads them again and then gives them their names; a
// [Content] of the caller supplies and verifies the contents.
package write
