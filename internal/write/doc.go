// Package write computes the layout of the files of a changed model and writes them.
//
// It gets a [graph.Copy] with its final structure, which it owns from then on. [Collect] lists the
// contents of the tensors. [Output.Place] decides the offset of each content, in the model file or in
// external data files. So all sizes are known before any content is computed. [File.Write] writes the
// files, reads them again and then renames them. A [Content] of the caller supplies and verifies the
// contents.
package write
