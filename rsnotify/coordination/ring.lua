-- Ring the bell at the server that has a key. In a Cluster all nodes hear it wherever it is rung, and
-- the node of this key has just answered, while another may be silent.
--
-- KEYS  1 the key: only where it is counts
-- ARGV  1 the bell   2 the message

return redis.call('PUBLISH', ARGV[1], ARGV[2])
