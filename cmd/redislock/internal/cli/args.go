package cli

import (
	"github.com/spf13/cobra"
)

// FlagsOnly is the Args of commands without arguments.
func FlagsOnly(cmd *cobra.Command, args []string) error {
	if len(args) > 0 { // do not repeat them: one may be an address with a password
		return Usagef(`%s takes flags only; run "%s --help"`, cmd.Name(), cmd.CommandPath())
	}
	return nil
}

// KeysWanted is the Args of commands that take the names of keys.
func KeysWanted(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return Usagef(`%s needs a KEY; run "%s --help"`, cmd.Name(), cmd.CommandPath())
	}
	return CheckKeys(args)
}

// CheckKeys returns a usage error if a key is empty.
func CheckKeys(keys []string) error {
	for i, key := range keys {
		if key == "" {
			return Usagef("KEY %d of %d is empty; is a variable unset?", i+1, len(keys))
		}
	}
	return nil
}
