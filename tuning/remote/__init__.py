"""Remote devices: candidates run on the servers of an RPC tracker."""
