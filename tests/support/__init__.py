"""What tests share: servers to start, peers to speak to, faults to cause.

`amount`             How much of a thing a test tries
`applications`       Applications that publish their papers
`clock`              A clock that tests move
`disks`              A disk of a test's own, that is full when the test wants it
`faults`             What can go wrong with a Redis, for any test
`forks`              Processes of the command line that begin with everything imported already
`forward_proxy`      A forward proxy as institutions have them
`hubs`               Hubs on a real Redis without a process around them
`hub_processes`      Hubs for tests of clients: a real process, and one that says what it is told
`jsonform`           The JSON Schema that the documents promise
`loading`            Loads of a set's whole state, without a process around them
`lossy_failover`     A failover to a replica that has not received the last changes
`needs`              Programs that a test needs and a machine may lack
`packing`            Packed entries, made of pieces that are there; gzip that inflates without end
`pulling`            All that can be pulled, without a process around it
`raw`                A WebSocket by hand
`receivers`          Subscribers for tests
`redis_cluster`      A Redis Cluster of three masters with a replica each
`redis_replicas`     A primary with replicas, to be stopped and promoted by tests
`redis_sentinels`    A trio of Sentinels over a primary and two replicas
`redis_server`       A Redis of the operator's own for tests
`redis_tls`          TLS before a Redis
`reference`          The reference client, `resync` 2.0.1, in an environment of its own
`running`            Real hubs for tests
`shell`              Where the tests run
`sources`            A Source in the test's own process
`stories`            What was acknowledged, listed and told around a loss; and the judge
`threaded_peer`      A server that says what a test wants, with threads of its own
"""
