package ggufmodel

// NewSource lets tests read a source by itself.
var NewSource = newSource
